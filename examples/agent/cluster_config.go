package main

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// clusterFields are the fields of KubeletConfiguration that matter in a
// cluster, and to those who ask the node.
var clusterFields = []string{
	"address", "port", "readOnlyPort", "enableServer", "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsMinVersion", "tlsCurvePreferences",
	"rotateCertificates", "serverTLSBootstrap", "authentication", "authorization",
	"enableDebuggingHandlers", "enableProfilingHandler", "enableSystemLogHandler", "enableSystemLogQuery", "enableDebugFlagsHandler",
	"kubeAPIQPS", "kubeAPIBurst", "eventRecordQPS", "eventBurst", "registerNode", "registerWithTaints", "providerID",
	"nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "nodeStatusMaxImages", "nodeLeaseDurationSeconds",
}

// setClusterDefaults fills in the kubelet's defaults of these fields.
func setClusterDefaults(c *kubeletconfig.KubeletConfiguration) {
	if c.Address == "" {
		c.Address = "0.0.0.0"
	}
	if c.Port == 0 {
		c.Port = 10250
	}
	orDefault(&c.EnableServer, true)
	orDefault(&c.Authentication.Anonymous.Enabled, false)
	orDefault(&c.Authentication.Webhook.Enabled, true)
	if c.Authentication.Webhook.CacheTTL.Duration == 0 {
		c.Authentication.Webhook.CacheTTL.Duration = 2 * time.Minute
	}
	if c.Authorization.Mode == "" {
		c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	}
	for d, def := range map[*metav1.Duration]time.Duration{
		&c.Authorization.Webhook.CacheAuthorizedTTL:   5 * time.Minute,
		&c.Authorization.Webhook.CacheUnauthorizedTTL: 30 * time.Second,
	} {
		if d.Duration == 0 {
			d.Duration = def
		}
	}
	for _, p := range []**bool{&c.EnableDebuggingHandlers, &c.EnableProfilingHandler, &c.EnableSystemLogHandler, &c.EnableDebugFlagsHandler} {
		orDefault(p, true)
	}
	orDefault(&c.EnableSystemLogQuery, false)
	orDefault(&c.RegisterNode, true)
	orDefault(&c.KubeAPIQPS, 50)
	orDefault(&c.EventRecordQPS, 50)
	if c.KubeAPIBurst == 0 {
		c.KubeAPIBurst = 100
	}
	if c.EventBurst == 0 {
		c.EventBurst = 100
	}
	if c.NodeStatusReportFrequency.Duration == 0 {
		// One who asks for frequent updates wants them seen.
		c.NodeStatusReportFrequency = c.NodeStatusUpdateFrequency
		if c.NodeStatusReportFrequency.Duration == 0 {
			c.NodeStatusReportFrequency.Duration = 5 * time.Minute
		}
	}
	if c.NodeStatusUpdateFrequency.Duration == 0 {
		c.NodeStatusUpdateFrequency.Duration = 10 * time.Second
	}
	orDefault(&c.NodeStatusMaxImages, 50)
	if c.NodeLeaseDurationSeconds == 0 {
		c.NodeLeaseDurationSeconds = 40
	}
}

// validateCluster tells what is wrong with these fields.
func validateCluster(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) {
	port := func(field string, n int32, least int32) {
		if n < least || n > 65535 {
			bad(field, n, "a port, "+map[int32]string{0: "or 0 for none", 1: "1 to 65535"}[least])
		}
	}
	port("port", c.Port, 1)
	port("readOnlyPort", c.ReadOnlyPort, 0)
	if (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == "") {
		bad("tlsCertFile", c.TLSCertFile, "tlsPrivateKeyFile beside it, or neither")
	}
	if c.ServerTLSBootstrap && c.TLSCertFile != "" {
		bad("serverTLSBootstrap", true, "false beside tlsCertFile")
	}
	if m := c.Authorization.Mode; m != kubeletconfig.KubeletAuthorizationModeWebhook && m != kubeletconfig.KubeletAuthorizationModeAlwaysAllow {
		bad("authorization.mode", m, "Webhook or AlwaysAllow")
	}
	if *c.EnableSystemLogQuery && !*c.EnableSystemLogHandler {
		bad("enableSystemLogQuery", true, "enableSystemLogHandler: true beside it")
	}
	for _, f := range []struct {
		field string
		n     int32
	}{
		{"kubeAPIBurst", c.KubeAPIBurst}, {"eventRecordQPS", *c.EventRecordQPS}, {"eventBurst", c.EventBurst},
	} {
		if f.n < 0 {
			bad(f.field, f.n, "0 or more")
		}
	}
	if n := *c.NodeStatusMaxImages; n < -1 {
		bad("nodeStatusMaxImages", n, "0 or more, or -1 for all")
	}
	if n := c.NodeLeaseDurationSeconds; n < 1 {
		bad("nodeLeaseDurationSeconds", n, "1 or more")
	}
	for field, d := range map[string]time.Duration{
		"nodeStatusUpdateFrequency": c.NodeStatusUpdateFrequency.Duration, "nodeStatusReportFrequency": c.NodeStatusReportFrequency.Duration,
	} {
		if d < 0 {
			bad(field, d.String(), "a duration above 0")
		}
	}
	for i := range c.RegisterWithTaints {
		t := &c.RegisterWithTaints[i]
		if msgs := validation.IsQualifiedName(t.Key); len(msgs) > 0 {
			bad("registerWithTaints", t.Key, msgs[0])
		}
		switch t.Effect {
		case "NoSchedule", "PreferNoSchedule", "NoExecute":
		default:
			bad("registerWithTaints", t.Effect, "NoSchedule, PreferNoSchedule or NoExecute")
		}
	}
}
