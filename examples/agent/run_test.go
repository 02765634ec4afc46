package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What flags say beside the kubelet's reaches the node.
func TestNodeOptions(t *testing.T) {
	root := t.TempDir()
	f, c, _, err := loadRun(t, configHead+"staticPodPath: /pods\nfailCgroupV1: false\nfailSwapOn: false\n", "--root-dir", root,
		"--starts-in-flight", "2", "--pulls-per-registry", "6", "--exec-probes-in-flight", "7", "--fast-probes")
	if err != nil {
		t.Fatal(err)
	}
	s := nodeOptions(f, c).Settings
	if s.StartsInFlight != 2 || s.PullsPerRegistry != 6 || s.ExecProbes != 7 || !s.FastProbes || s.Socket != filepath.Join(root, "agent.sock") {
		t.Errorf("settings %+v", s)
	}
	f.socket, f.secretKeyFile, f.secretsInClear = "/run/a.sock", "/key", true
	if s := nodeOptions(f, c).Settings; s.Socket != "/run/a.sock" || s.SecretKeyFile != "/key" || !s.SecretsInClear {
		t.Errorf("settings %+v", s)
	}
}

// A root directory or a socket that cannot be is told before anything runs.
func TestRunCannotBegin(t *testing.T) {
	dir := files(t, map[string]string{"file": "", "k.yaml": configHead + "failCgroupV1: false\nfailSwapOn: false\nhealthzPort: 0\n"})
	_, stderr, code := invoke(t, "--config", filepath.Join(dir, "k.yaml"), "--root-dir", filepath.Join(dir, "file"),
		"--pod-manifest-path", dir, "--container-runtime-endpoint", filepath.Join(dir, "cri.sock"))
	if code != 1 || !strings.Contains(stderr, filepath.Join(dir, "file")) || !strings.Contains(stderr, "not a directory") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}
