package nodeagent

import (
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
)

// What is configured reaches the agent.
func TestRunAgentConfig(t *testing.T) {
	b := newBuilder(t, `
staticPodPath: /pods
staticPodURL: http://127.0.0.1:1/pods
syncFrequency: 7s
registryPullQPS: 3
registryBurst: 4
maxParallelImagePulls: 5
clusterDomain: edge.local
clusterDNS: [10.0.0.10]
resolvConf: ""
seccompDefault: true
podLogsDir: /logs
crashLoopBackOff: {maxContainerRestartPeriod: 9s}
imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages
preloadedImagesVerificationAllowlist: [registry.example/base]
cpuCFSQuota: false
cpuCFSQuotaPeriod: 20ms
singleProcessOOMKill: true
featureGates: {LocalStorageCapacityIsolationFSQuotaMonitoring: true}
failCgroupV1: false
failSwapOn: false
`, "--hostname-override", "me")
	var err error
	if b.Node, err = nodeOf(b.Config); err != nil {
		t.Log(err) // what cannot be read here is not what is tested
	}
	b.Settings = Settings{StartsInFlight: 2, PullsPerRegistry: 6, ExecProbes: 7, FastProbes: true}
	for of, want := range map[string]string{"": "/containers", "-": "", "/var/log/containers": "/var/log/containers", "/logs": ""} {
		if b.Settings.ContainerLogs = of; b.containerLogs() != want {
			t.Errorf("links of %q in %q, want %q", of, b.containerLogs(), want)
		}
	}
	b.Settings.ContainerLogs = ""
	cfg, err := b.agent([]part.Part{part.AdmitFunc("own", nil)}, []podmgr.Source{nil})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		field     string
		got, want any
	}{
		{"Node.Name", cfg.Node.Name, "me"},
		{"Paths.Root", cfg.Paths.Root, b.Config.RootDir},
		{"Paths.PodLogs", cfg.Paths.PodLogs, "/logs"},
		{"Paths.ContainerLogs", cfg.Paths.ContainerLogs, "/containers"},
		{"Sources", len(cfg.Sources), 3},
		{"Parts", cfg.Parts[0].Name(), "own"},
		{"SyncFrequency", cfg.Pods.SyncFrequency, 7 * time.Second},
		{"StartsInFlight", cfg.Pods.StartsInFlight, 2},
		{"PullQPS", cfg.Images.QPS, 3.0},
		{"PullBurst", cfg.Images.Burst, 4},
		{"ParallelPulls", cfg.Images.Parallel, 5},
		{"ParallelPullsPerRegistry", cfg.Images.ParallelPerRegistry, 6},
		{"ClusterDomain", cfg.DNS.ClusterDomain, "edge.local"},
		{"ClusterDNS", strings.Join(cfg.DNS.ClusterDNS, " "), "10.0.0.10"},
		{"ResolvConf", cfg.DNS.ResolvConf, "-"}, // "" asks for none
		{"Volumes.Projects", cfg.Volumes.Projects, true},
		{"SeccompDefault", cfg.Pods.SeccompDefault, true},
		{"CrashBackoff", cfg.Pods.CrashBackoff, podruntime.DoublingBackoff{Max: 9 * time.Second}},
		{"VerifyPulls", string(cfg.Images.Verify), "NeverVerifyAllowlistedImages"},
		{"PullAllowlist", strings.Join(cfg.Images.Allowlist, " "), "registry.example/base"},
		{"NoCPUQuota", cfg.Pods.NoCPUQuota, true},
		{"CPUPeriod", cfg.Pods.CPUPeriod, 20 * time.Millisecond},
		{"ParallelExecProbes", cfg.Probes.ParallelExec, 7},
		{"FastProbes", cfg.Probes.Fast, true},
		{"SingleProcessOOMKill", cfg.Pods.SingleProcessOOMKill, true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s = %v, want %v", tc.field, tc.got, tc.want)
		}
	}
}
