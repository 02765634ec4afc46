package kubeletconfig

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubelet/config/v1beta1"
)

func validateServer(c *v1beta1.KubeletConfiguration, bad reporter) {
	if c.Port < 1 || c.Port > 65535 {
		bad("port", c.Port, "a port, 1 to 65535")
	}
	if c.ReadOnlyPort < 0 || c.ReadOnlyPort > 65535 {
		bad("readOnlyPort", c.ReadOnlyPort, "a port, or 0 for none")
	}
	if (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == "") {
		bad("tlsCertFile", c.TLSCertFile, "both tlsCertFile and tlsPrivateKeyFile, or neither")
	}
	if c.ServerTLSBootstrap && c.TLSCertFile != "" {
		bad("serverTLSBootstrap", true, "false if tlsCertFile is set")
	}
	if m := c.Authorization.Mode; m != v1beta1.KubeletAuthorizationModeWebhook && m != v1beta1.KubeletAuthorizationModeAlwaysAllow {
		bad("authorization.mode", m, "Webhook or AlwaysAllow")
	}
	if *c.EnableSystemLogQuery && !*c.EnableSystemLogHandler {
		bad("enableSystemLogQuery", true, "false, or enableSystemLogHandler: true")
	}
}

func validateCluster(c *v1beta1.KubeletConfiguration, bad reporter) {
	notNegative(bad, number{"kubeAPIBurst", c.KubeAPIBurst}, number{"eventRecordQPS", *c.EventRecordQPS}, number{"eventBurst", c.EventBurst})
	if n := *c.NodeStatusMaxImages; n < -1 {
		bad("nodeStatusMaxImages", n, "0 or more, or -1 for all")
	}
	if n := c.NodeLeaseDurationSeconds; n < 1 {
		bad("nodeLeaseDurationSeconds", n, "1 or more")
	}
	positive(bad, interval{"nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency.Duration},
		interval{"nodeStatusReportFrequency", c.NodeStatusReportFrequency.Duration})
}

func validateTaints(c *v1beta1.KubeletConfiguration, bad reporter) {
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
