package podruntime

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// Nothing stays of pods that went, whether anybody said Forget or not.
func TestRetainForgetsPodsThatAreGone(t *testing.T) {
	m, err := New(Config{Runtime: newMemory(), Images: present{}, PodLogsDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	now, boom := time.Now(), errors.New("boom")
	for i := range 2000 {
		uid := types.UID(fmt.Sprint("u", i))
		_ = m.runs.fail(uid, "c", boom, now)
		m.runs.give(uid, "id", v1.ResourceCPU, &runtimeapi.LinuxContainerResources{})
	}
	m.Retain(func(uid types.UID) bool { return uid == "u7" })
	if left, _ := m.runs.all(); len(left) != 1 || left[0] != "u7" {
		t.Errorf("%d pods are remembered", len(left))
	}
	if err := m.runs.held("u7", "c", now); err == nil {
		t.Error("the pod that stays is forgotten")
	}
}

// Whatever comes and goes, what is remembered of removals is bounded, and
// nothing of it is left when it is old.
func TestRemovalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRuns()
		most := 0
		for i := range 20_000 {
			obs := &observed.Pod{
				UID: types.UID(fmt.Sprint("u", i)), ObservedAt: time.Now(),
				Sandboxes: []observed.Sandbox{{ID: fmt.Sprint("s", i)}}, Containers: []observed.Container{{ID: fmt.Sprint("c", i)}},
			}
			if err := p.goes(obs, time.Now()); err != nil {
				t.Fatal(err)
			}
			most = max(most, len(p.removed.at))
			time.Sleep(100 * time.Millisecond)
		}
		if most > removedMost {
			t.Errorf("%d removals were remembered at a time", most)
		}
		time.Sleep(removedFor + sweepEvery)
		if err := p.goes(&observed.Pod{UID: "last"}, time.Now()); err != nil || len(p.removed.at) != 0 {
			t.Errorf("%v; %d removals are left", err, len(p.removed.at))
		}
	})
}
