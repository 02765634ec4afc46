package resources_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podworker"
)

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
}

func joined(t *testing.T, cfg resources.PodResourcesConfig) (*resources.PodResources, *agenttest.Host) {
	t.Helper()
	p, err := resources.NewPodResources(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := agenttest.NewHost(t)
	if err := p.Join(h); err != nil {
		t.Fatal(err)
	}
	return p, h
}

func TestPodResourcesMistakes(t *testing.T) {
	if _, err := resources.NewPodResources(resources.PodResourcesConfig{Socket: "here"}); err == nil || !strings.Contains(err.Error(), `"here"`) {
		t.Errorf("a relative path: %v", err)
	}
	p, h := joined(t, resources.PodResourcesConfig{Socket: "/s"})
	if err := p.Join(h); err == nil {
		t.Error("a part of two agents")
	}
}

// Pods that run and were not adopted yet count, those that have ended do not.
func TestActivePods(t *testing.T) {
	p, h := joined(t, resources.PodResourcesConfig{Socket: "/s"})
	h.SetPods(pod("admitted"), pod("early"), pod("over"), pod("stopped"), pod("waiting"))
	for _, name := range []types.UID{"early", "over", "stopped", "waiting"} {
		h.SetStatus(name, v1.PodStatus{Phase: v1.PodFailed}) // so that the host does not list it
	}
	for _, name := range []types.UID{"early", "stopped"} {
		h.SetObserved(&observed.Pod{UID: name, Containers: []observed.Container{{ID: string(name), State: observed.Running}}})
	}
	h.SetWorker(podworker.Status{UID: "stopped", Kind: podworker.Terminated})
	var names []string
	for _, pod := range p.ActivePods() {
		names = append(names, pod.Name)
	}
	if !slices.Equal(names, []string{"admitted", "early"}) {
		t.Errorf("pods %v", names)
	}
}

// The socket is made at once, and Run ends with its context, also while it is not known which
// pods there are. Here it cannot be made, which is logged at each try.
func TestListensAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.ErrorLevel)
		p, _ := joined(t, resources.PodResourcesConfig{Socket: filepath.Join(file, "s"), Log: zap.New(core)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := logs.Len(); n != 1 {
			t.Errorf("%d tries, want 1", n)
		}
	})
}
