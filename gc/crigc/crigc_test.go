package crigc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/gc/logrotate"
)

// node is a runtime with pods.
type node struct {
	*critest.Runtime
	t    *testing.T
	logs string
}

func newNode(t *testing.T, images ...string) node {
	rt := critest.New()
	rt.AddImage(images...)
	return node{rt, t, t.TempDir()}
}

func (n node) sandbox(uid string) (string, *runtimeapi.PodSandboxConfig) {
	n.t.Helper()
	conf := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: uid},
		Labels:       map[string]string{cri.LabelPodName: "pod", cri.LabelPodNamespace: "ns", cri.LabelPodUID: uid},
		LogDirectory: filepath.Join(n.logs, "ns_pod_"+uid),
	}
	id, err := n.RunPodSandbox(n.t.Context(), conf, "")
	if err != nil {
		n.t.Fatal(err)
	}
	return id, conf
}

// container runs a container, and its script is args.
func (n node) container(sandbox string, conf *runtimeapi.PodSandboxConfig, image string, attempt uint32, args ...string) string {
	n.t.Helper()
	labels := map[string]string{cri.LabelContainerName: "app"}
	for k, v := range conf.GetLabels() {
		labels[k] = v
	}
	id, err := n.CreateContainer(n.t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: image},
		Args: args, Labels: labels, LogPath: fmt.Sprintf("app/%d.log", attempt),
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", Image: &runtimeapi.ImageSpec{Image: "mounted:1"}}},
	}, conf)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.StartContainer(n.t.Context(), id); err != nil {
		n.t.Fatal(err)
	}
	return id
}

func TestImages(t *testing.T) {
	n := newNode(t, "app:1", "mounted:1", "idle:1")
	sb, conf := n.sandbox("uid")
	id := n.container(sb, conf, "app:1", 0, "exit", "0")
	s := NewImages(n, n)
	m, err := gc.NewImageCollector(gc.ImageConfig{Store: s, Policy: &gc.ImagePolicy{High: 90, Low: 80}})
	if err != nil {
		t.Fatal(err)
	}
	verdicts := func() map[string]string {
		rep, err := m.Explain(t.Context())
		if err == nil {
			t.Error("no error, though the runtime reports nothing about the disk")
		}
		out := map[string]string{}
		for _, o := range rep.Images {
			out[o.Image.Tags[0]] = o.Verdict.String() + " " + o.Why
		}
		return out
	}
	for range 2 {
		got := verdicts()
		if got["app:1"] != "in use ns/pod/app" || got["mounted:1"] != "in use ns/pod/app" || got["idle:1"] != "removable " {
			t.Errorf("%q", got)
		}
	}
	if c := n.Calls("ContainerStatus"); len(c) != 1 {
		t.Errorf("%d calls for one container that has ended", len(c))
	}
	if err := n.RemoveContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := verdicts(); got["app:1"] != "removable " || len(s.statuses.known) != 0 {
		t.Errorf("%q, %v", got, s.statuses.known)
	}
	if _, err := m.Reclaim(t.Context(), 1<<40); err != nil {
		t.Error(err)
	}
	if left, err := s.Images(t.Context()); len(left) != 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	n.AddImage("app:1", "mounted:1")
	n.container(sb, conf, "app:1", 1, "exit", "0")
	for _, method := range []string{"ContainerStatus", "ListContainers"} {
		// Without the one it is not known what a container mounts.
		n.Fail(method, errors.New("boom"))
		if _, err := s.Uses(t.Context()); err == nil {
			t.Errorf("no error, though %s fails", method)
		}
		if _, err := m.Reclaim(t.Context(), 1<<40); err == nil || len(n.Calls("RemoveImage")) != 3 {
			t.Errorf("%v, %d images removed, want 3 as before", err, len(n.Calls("RemoveImage")))
		}
		n.Fail(method, nil)
	}
}

// fsInfo is a runtime that reports a disk.
type fsInfo struct {
	node
	info []*runtimeapi.FilesystemUsage
}

func (f *fsInfo) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: f.info}, nil
}

func TestDisk(t *testing.T) {
	f := &fsInfo{node: newNode(t)}
	s := NewImages(f, f)
	if _, err := s.Disk(t.Context()); err == nil {
		t.Error("no error without a file system")
	}
	f.info = []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: f.logs}, UsedBytes: &runtimeapi.UInt64Value{Value: 77},
	}}
	d, err := s.Disk(t.Context())
	if err != nil || d.Capacity <= 0 || d.Available <= 0 || d.Available > d.Capacity || d.Images != 77 {
		t.Errorf("%+v, %v", d, err)
	}
	f.info[0].FsId.Mountpoint = filepath.Join(f.logs, "none")
	if _, err := s.Disk(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

type criPods map[types.UID]gc.PodState

func (p criPods) Ready() bool                     { return true }
func (p criPods) State(uid types.UID) gc.PodState { return p[uid] }

func TestContainers(t *testing.T) {
	n := newNode(t, "app:1")
	sb, conf := n.sandbox("live")
	n.container(sb, conf, "app:1", 0, "out", "x", "exit", "0")
	n.container(sb, conf, "app:1", 1, "out", "x", "exit", "1")
	n.container(sb, conf, "app:1", 2, "out", "x", "sleep", "forever")
	gone, goneConf := n.sandbox("gone")
	n.container(gone, goneConf, "app:1", 0, "exit", "0")
	if err := n.StopPodSandbox(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	rotated := filepath.Join(n.logs, "ns_pod_live", "app", "0.log.20260102-150405.gz")
	if err := os.WriteFile(rotated, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewContainers(n, n.logs)
	m, err := gc.NewContainerCollector(gc.ContainerConfig{Runtime: s, Pods: criPods{"gone": gc.Deleted}, PodLogsDir: n.logs})
	if err != nil {
		t.Fatal(err)
	}
	removed, err := m.Collect(t.Context())
	if err != nil || removed != 4 { // two containers, a sandbox, a directory
		t.Errorf("%d removed, %v", removed, err)
	}
	sandboxes, containers, err := s.List(t.Context(), "")
	if err != nil || len(sandboxes) != 1 || len(containers) != 2 {
		t.Errorf("%v, %v, %v", sandboxes, containers, err)
	}
	for _, c := range containers {
		if (c.State.String() == "exited") != !c.FinishedAt.IsZero() || c.Pod != "live" || c.Name != "app" || c.Sandbox != sb {
			t.Errorf("%+v", c)
		}
	}
	entries, err := os.ReadDir(filepath.Join(n.logs, "ns_pod_live", "app"))
	if err != nil || len(entries) != 2 {
		t.Errorf("logs %v, %v, want those of the two that are left", entries, err)
	}
	if _, one, err := s.List(t.Context(), "live"); err != nil || len(one) != 2 {
		t.Errorf("%v, %v", one, err)
	}
	// What is gone is no error.
	if err := errors.Join(s.StopContainer(t.Context(), "x"), s.RemoveContainer(t.Context(), gc.Container{ID: "x"}), s.RemoveSandbox(t.Context(), "x")); err != nil {
		t.Error(err)
	}
	// Nothing outside of the directory for logs is touched.
	outside := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveContainer(t.Context(), gc.Container{ID: "x", LogPath: outside}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	n.Fail("StopPodSandbox", errors.New("boom"))
	if err := s.RemoveSandbox(t.Context(), sb); err == nil || len(n.Calls("RemovePodSandbox")) > 2 {
		t.Errorf("a sandbox that cannot be stopped: %v", err)
	}
}

// A container that writes, rotated through the runtime.
func TestRunningAndRotation(t *testing.T) {
	n := newNode(t, "app:1")
	sb, conf := n.sandbox("uid")
	n.container(sb, conf, "app:1", 0, "exit", "0")
	id := n.container(sb, conf, "app:1", 1, "out", "more than ten bytes", "sleep", "forever")
	s := NewContainers(n, n.logs)
	path := filepath.Join(n.logs, "ns_pod_uid", "app", "1.log")
	for range 2 {
		logs, err := s.Running(t.Context())
		if err != nil || len(logs) != 1 || logs[0] != (logrotate.Log{ID: id, Pod: "uid", Path: path}) {
			t.Errorf("%v, %v", logs, err)
		}
	}
	if c := n.Calls("ContainerStatus"); len(c) != 1 {
		t.Errorf("%d calls for one container that runs", len(c))
	}
	m, err := logrotate.New(logrotate.Config{Runtime: n, MaxSize: 10, Running: s.Running})
	if err != nil {
		t.Fatal(err)
	}
	reopened := make(chan bool, 1)
	n.Around(nil, func(c critest.Call) error {
		if c.Method == "ReopenContainerLog" {
			reopened <- true
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	<-reopened
	cancel()
	<-done
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v, want the log, the one before, and that of the container before", entries, err)
	}
}

// The runtime's attempts order instances.
func TestAttemptsAreListed(t *testing.T) {
	n := newNode(t, "app:1", "mounted:1")
	conf := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid", Attempt: 3}, Labels: map[string]string{cri.LabelPodUID: "uid"},
		LogDirectory: filepath.Join(n.logs, "ns_pod_uid"),
	}
	sb, err := n.RunPodSandbox(t.Context(), conf, "")
	if err != nil {
		t.Fatal(err)
	}
	n.container(sb, conf, "app:1", 7, "exit", "0")
	sandboxes, containers, err := NewContainers(n, n.logs).List(t.Context(), "")
	if err != nil || len(sandboxes) != 1 || sandboxes[0].Attempt != 3 || len(containers) != 1 || containers[0].Attempt != 7 {
		t.Errorf("%+v, %+v, %v", sandboxes, containers, err)
	}
}
