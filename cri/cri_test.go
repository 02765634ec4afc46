package cri_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
)

func TestBadConfig(t *testing.T) {
	for endpoint, want := range map[string]string{
		"":                    "want unix:///path",
		"tcp://127.0.0.1:1":   `scheme "tcp" is not supported`,
		"unix://relative":     "want unix:///path",
		"containerd.sock":     "want unix:///path",
		"npipe:////./pipe/cd": `scheme "npipe" is not supported`,
	} {
		if _, err := cri.New(cri.Config{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("endpoint %q: %v, want %q", endpoint, err, want)
		}
	}
	reg := prometheus.NewRegistry()
	for i := range 2 {
		if _, err := cri.New(cri.Config{Endpoint: "/x", Metrics: reg}); err != nil {
			t.Errorf("client %d on one registry: %v", i, err)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"unix:///run/c.sock", "/run/c.sock", "tcp://x", "", "unix://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := cri.New(cri.Config{Endpoint: s})
		if err == nil {
			_ = c.Close(t.Context())
		}
	})
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	missing, there := filepath.Join(dir, "no.sock"), filepath.Join(dir, "yes.sock")
	l, err := net.Listen("unix", there)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if got, err := cri.Find(t.Context(), []string{missing, there}); err != nil || got != "unix://"+there {
		t.Errorf("found %q, %v", got, err)
	}
	if _, err := cri.Find(t.Context(), []string{missing}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("error %v does not name what was tried", err)
	}
}

func TestDeadlineOfACall(t *testing.T) {
	rt := critest.New()
	release := rt.Hang("Version")
	defer release()
	c := rt.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Version(ctx, "v1"); err == nil || !strings.HasPrefix(err.Error(), "version: ") {
		t.Errorf("error %v", err)
	}
}

func TestComesBackAfterTheRuntime(t *testing.T) {
	rt := critest.New()
	c := rt.Client(t)
	rt.Die()
	if _, err := c.Version(t.Context(), "v1"); err == nil {
		t.Error("a dead runtime answered")
	}
	rt.Revive()
	if v, err := c.Version(t.Context(), "v1"); err != nil || v.GetRuntimeName() != "critest" {
		t.Errorf("version %v, %v", v, err)
	}
}

// addPod makes a pod of one container.
func addPod(t testing.TB, rt *critest.Runtime, uid string, args ...string) (sandbox, container string) {
	t.Helper()
	labels := map[string]string{cri.LabelPodUID: uid, cri.LabelPodName: "name-" + uid, cri.LabelPodNamespace: "ns"}
	sandbox, err := rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "name-" + uid, Uid: uid, Namespace: "ns"}, Labels: labels,
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	container, err = rt.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: 3}, Image: &runtimeapi.ImageSpec{Image: "i"}, Args: args,
		Labels: labels, Annotations: map[string]string{cri.AnnotationHash: "abc", cri.AnnotationRestartCount: "3"},
	}, nil)
	if err == nil {
		err = rt.StartContainer(t.Context(), container)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sandbox, container
}

func TestReader(t *testing.T) {
	rt := critest.New()
	rt.AddImage("i")
	sandbox, running := addPod(t, rt, "a", "sleep", "forever")
	_, dead := addPod(t, rt, "b", "exit", "7")
	r := cri.NewReader(rt)

	list, err := r.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("list %v, %v", list, err)
	}
	for _, l := range list {
		if l.Name != "name-"+string(l.UID) || l.Namespace != "ns" || len(l.Sandboxes) != 1 || len(l.Containers) != 1 {
			t.Errorf("listed %+v", l)
		}
	}
	before := time.Now()
	p, err := r.Inspect(t.Context(), "a")
	if err != nil || p.Name != "name-a" || p.ObservedAt.Before(before) || len(p.IPs()) != 1 {
		t.Fatalf("pod %+v, %v", p, err)
	}
	c := p.Newest("c")
	if c.ID != running || c.State != observed.Running || c.Hash != "abc" || c.RestartCount != 3 || c.SandboxID != sandbox || c.StartedAt.IsZero() || !c.FinishedAt.IsZero() {
		t.Errorf("container %+v", c)
	}
	// What has ended is asked for once.
	for range 3 {
		p, err = r.Inspect(t.Context(), "b")
		if err != nil || p.Newest("c").Code() != 7 || p.Newest("c").ID != dead {
			t.Errorf("pod %+v, %v", p, err)
		}
	}
	asked := 0
	for _, call := range rt.Calls("ContainerStatus") {
		if call.Target == dead {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("a dead container's status was asked for %d times", asked)
	}
	if p, err := r.Inspect(t.Context(), "nobody"); err != nil || p.UID != types.UID("nobody") || len(p.Sandboxes) != 0 {
		t.Errorf("pod that is not there: %+v, %v", p, err)
	}
	boom := errors.New("boom")
	rt.Fail("PodSandboxStatus", boom)
	if _, err := r.Inspect(t.Context(), "a"); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}

// telling is a runtime that reports more of its containers than the usual.
type telling struct {
	cri.ReadRuntime
	more func(*runtimeapi.ContainerStatus)
}

func (r telling) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	resp, err := r.ReadRuntime.ContainerStatus(ctx, id, verbose)
	if err == nil {
		r.more(resp.Status)
	}
	return resp, err
}

func TestReadMountsAndStopSignal(t *testing.T) {
	rt := critest.New()
	rt.AddImage("i")
	addPod(t, rt, "a", "sleep", "forever")
	read := func(signal runtimeapi.Signal, mounts ...*runtimeapi.Mount) *observed.Container {
		t.Helper()
		r := cri.NewReader(telling{rt, func(s *runtimeapi.ContainerStatus) { s.StopSignal, s.Mounts = signal, mounts }})
		p, err := r.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return p.Newest("c")
	}
	for signal, want := range map[runtimeapi.Signal]string{
		runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT: "", runtimeapi.Signal_SIGNAL_SIGTERM: "SIGTERM", runtimeapi.Signal_SIGNAL_SIGRTMIN: "SIGRTMIN",
		runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3: "SIGRTMIN+3", runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS14: "SIGRTMAX-14",
	} {
		if got := read(signal).StopSignal; got != want {
			t.Errorf("%v: stop signal %q, want %q", signal, got, want)
		}
	}
	got := read(0,
		&runtimeapi.Mount{ContainerPath: "/plain", HostPath: "/x", Readonly: true},
		&runtimeapi.Mount{ContainerPath: "/below", HostPath: "/x", Readonly: true, RecursiveReadOnly: true},
		&runtimeapi.Mount{ContainerPath: "/image", Image: &runtimeapi.ImageSpec{Image: "sha256:1"}},
	).Mounts
	want := []observed.Mount{{Path: "/below", RecursiveReadOnly: true}, {Path: "/image", ImageRef: "sha256:1"}}
	if !slices.Equal(got, want) {
		t.Errorf("mounts %+v, want %+v", got, want)
	}
}

func TestEvents(t *testing.T) {
	rt := critest.New()
	rt.AddImage("i")
	r := cri.NewReader(rt)
	ready, got := make(chan struct{}), make(chan observed.Event, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- r.Events(t.Context(), func() { close(ready) }, func(e observed.Event) { got <- e })
	}()
	<-ready
	_, id := addPod(t, rt, "u", "exit", "0")
	var kinds []string
	for len(kinds) < 3 {
		if e := <-got; e.ID == id {
			if e.UID != "u" {
				t.Errorf("event of pod %q", e.UID)
			}
			kinds = append(kinds, e.Kind.String())
		}
	}
	if s := strings.Join(kinds, " "); s != "created started stopped" {
		t.Errorf("events %q", s)
	}
	rt.Die()
	if err := <-ended; err == nil || errors.Is(err, observed.ErrNoEventStream) {
		t.Errorf("end of the stream: %v", err)
	}
	rt.Revive()
	rt.NoEvents()
	if err := r.Events(t.Context(), func() {}, func(observed.Event) {}); !errors.Is(err, observed.ErrNoEventStream) {
		t.Errorf("runtime without a stream: %v", err)
	}
}
