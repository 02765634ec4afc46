package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/pluginmgr"
)

// What finds plugins fits what uses them, though neither knows the other.
var _ pluginmgr.Handler = devicemgr.Registrar{}

// agent runs a device manager until stop is called.
func agent(t *testing.T, sockets, state string) (m *devicemgr.Manager, changed <-chan struct{}, stop func()) {
	t.Helper()
	store, err := checkpoint.Open(checkpoint.Config{Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	m, err = devicemgr.New(devicemgr.Config{SocketDir: sockets, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	news := make(chan struct{}, 1)
	m.Subscribe(func(devicemgr.Change) {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	return m, news, testrun.Start(t, m.Run)
}

// A pod gets a file, the agent is restarted, a file is removed.
func TestWithDeviceManager(t *testing.T) {
	sockets, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	devices, state := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b@0"} {
		if err := os.WriteFile(filepath.Join(devices, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &plugin{resource: "example.com/thing", devices: devices, sockets: sockets}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.run(ctx, func(what string) { t.Log(what) }) }()

	m, changed, stop := agent(t, sockets, state)
	until := func(want string) {
		t.Helper()
		late := time.After(2 * time.Minute)
		for {
			c := m.Capacity()["example.com/thing"]
			got := fmt.Sprintf("%d/%d", c.Capacity, c.Allocatable)
			if got == want {
				return
			}
			select {
			case <-changed:
			case <-late:
				t.Fatalf("capacity %s, want %s", got, want)
			}
		}
	}
	until("2/2")
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{"example.com/thing": resource.MustParse("1")},
		}}}},
	}
	if err := m.Admit(ctx, pod); err != nil {
		t.Fatal(err)
	}
	a, err := m.Attachment(pod, "main")
	if err != nil || len(a.Env) != 1 || a.Env[0].Value != "a" || a.Mounts[0].HostPath != filepath.Join(devices, "a") {
		t.Errorf("attachment %+v, %v, want file a", a, err)
	}

	stop()
	m, changed, stop = agent(t, sockets, state)
	until("2/2") // it registers again by itself
	if again, err := m.Attachment(pod, "main"); err != nil || len(again.Env) != 1 || again.Env[0] != a.Env[0] {
		t.Errorf("attachment after a restart %+v, %v, want file a", again, err)
	}
	if err := os.Remove(filepath.Join(devices, "a")); err != nil {
		t.Fatal(err)
	}
	until("2/1")
	if h := m.Health("1", "main"); len(h) != 1 || h[0].Resources[0].Health != v1.ResourceHealthStatusUnhealthy {
		t.Errorf("health %v, want one unhealthy device", h)
	}
	stop()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	p := &plugin{devices: "/nowhere", sockets: t.TempDir()}
	if err := errors.Join(p.check(), extra([]string{"x"})); err == nil {
		t.Error("a directory that is not there is taken")
	}
}
