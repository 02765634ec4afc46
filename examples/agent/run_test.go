package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func TestRunParallelPulls(t *testing.T) {
	for _, tc := range []struct {
		content string
		want    int
	}{
		{"", 1},
		{"serializeImagePulls: true", 1},
		{"serializeImagePulls: false", 0}, // any number
		{"maxParallelImagePulls: 4", 4},
		{"maxParallelImagePulls: 1\nserializeImagePulls: false", 1},
	} {
		c, _, _, err := load(t, configHead+tc.content)
		if err != nil {
			t.Fatal(err)
		}
		if got := parallelPulls(c); got != tc.want {
			t.Errorf("%q: %d pulls at a time, want %d", tc.content, got, tc.want)
		}
	}
}

// What is configured reaches the agent.
func TestRunAgentConfig(t *testing.T) {
	root := t.TempDir()
	c, _, _, err := load(t, configHead+`
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
failCgroupV1: false
`)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseRunFlags(discard(), []string{"--root-dir", root, "--hostname-override", "me", "--starts-in-flight", "2", "--pulls-per-registry", "6"})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := agentConfig(f, c, nil, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		field     string
		got, want any
	}{
		{"Node.Name", cfg.Node.Name, "me"},
		{"RootDir", cfg.RootDir, root},
		{"PodLogsDir", cfg.PodLogsDir, "/logs"},
		{"Sources", len(cfg.Sources), 2},
		{"SyncFrequency", cfg.SyncFrequency, 7 * time.Second},
		{"StartsInFlight", cfg.StartsInFlight, 2},
		{"PullQPS", cfg.PullQPS, 3.0},
		{"PullBurst", cfg.PullBurst, 4},
		{"ParallelPulls", cfg.ParallelPulls, 5},
		{"ParallelPullsPerRegistry", cfg.ParallelPullsPerRegistry, 6},
		{"ClusterDomain", cfg.ClusterDomain, "edge.local"},
		{"ClusterDNS", strings.Join(cfg.ClusterDNS, " "), "10.0.0.10"},
		{"ResolvConf", cfg.ResolvConf, "-"}, // "" asks for none
		{"SeccompDefault", cfg.SeccompDefault, true},
		{"MaxCrashBackoff", cfg.MaxCrashBackoff, 9 * time.Second},
		{"VerifyPulls", string(cfg.VerifyPulls), "NeverVerifyAllowlistedImages"},
		{"PullAllowlist", strings.Join(cfg.PullAllowlist, " "), "registry.example/base"},
		{"NoCPUQuota", cfg.NoCPUQuota, true},
		{"CPUPeriod", cfg.CPUPeriod, 20 * time.Millisecond},
		{"SingleProcessOOMKill", cfg.SingleProcessOOMKill, true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s = %v, want %v", tc.field, tc.got, tc.want)
		}
	}
}

// A root directory or a socket that cannot be is told before anything runs.
func TestRunCannotBegin(t *testing.T) {
	dir := files(t, map[string]string{"file": "", "k.yaml": configHead + "failCgroupV1: false\nhealthzPort: 0\n"})
	_, stderr, code := invoke(t, "--config", filepath.Join(dir, "k.yaml"), "--root-dir", filepath.Join(dir, "file"),
		"--pod-manifest-path", dir, "--container-runtime-endpoint", filepath.Join(dir, "cri.sock"))
	if code != 1 || !strings.Contains(stderr, filepath.Join(dir, "file")) || !strings.Contains(stderr, "not a directory") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}
