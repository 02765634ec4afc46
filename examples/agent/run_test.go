package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
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
	f.socket, f.secretKeyFile, f.secretCredential, f.secretsInClear = "/run/a.sock", "/key", "cred", true
	if s := nodeOptions(f, c).Settings; s.Socket != "/run/a.sock" || s.SecretKeyFile != "/key" || s.SecretKeyCredential != "cred" || !s.SecretsInClear {
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

func TestRunNeedsRoot(t *testing.T) {
	denied := fmt.Errorf("directory of the node: %w", &os.PathError{Op: "mkdir", Path: "/var/lib/kubelet", Err: unix.EACCES})
	other := errors.New("manifests: no such directory")
	core, logs := observer.New(zap.DebugLevel)
	for _, tc := range []struct {
		err  error
		uid  int
		want string
	}{
		{denied, 1000, "run needs root: sudo agent run"},
		{errors.Join(other, fmt.Errorf("the agent lacks CAP_NET_ADMIN (%w)", unix.EPERM)), 1000, "run needs root: sudo agent run"},
		{denied, 0, denied.Error()},
		{other, 1000, other.Error()},
	} {
		if err := needsRoot(tc.err, tc.uid, zap.New(core), "agent"); err == nil || err.Error() != tc.want {
			t.Errorf("%v of user %d: %v, want %s", tc.err, tc.uid, err, tc.want)
		}
	}
	if err := needsRoot(nil, 1000, zap.New(core), "agent"); err != nil || logs.Len() != 2 || logs.FilterLevelExact(zap.DebugLevel).Len() != 2 {
		t.Errorf("%v, log %v", err, logs.All())
	}
}
