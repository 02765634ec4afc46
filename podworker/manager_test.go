package podworker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nopSyncer succeeds at once.
type nopSyncer struct{}

func (nopSyncer) SyncPod(context.Context, Work) (Outcome, error)        { return Outcome{}, nil }
func (nopSyncer) SyncTerminatingPod(context.Context, Work) error        { return nil }
func (nopSyncer) SyncTerminatingRuntimePod(context.Context, Work) error { return nil }
func (nopSyncer) SyncTerminatedPod(context.Context, Work) error         { return nil }

func begin(t *testing.T, cfg Config) (m *Manager, end func()) {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx) // always nil
	}()
	synctest.Wait()
	return m, func() {
		cancel()
		<-ended
	}
}

func podNamed(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "ns"}}
}

// A pod that is killed after it was given its place among the first syncs,
// and before its worker ran, gives the place back.
func TestKillBeforeTheWorkerRunsFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, end := begin(t, Config{Syncer: nopSyncer{}, FirstSyncs: 1})
		defer end()
		m.workers.Lock() // so that no worker comes between
		for _, u := range []Update{
			{Type: CreateUpdate, Pod: podNamed("a")}, {Type: KillUpdate, Pod: podNamed("a")}, {Type: CreateUpdate, Pod: podNamed("b")},
		} {
			m.apply(m.core.update(u.Pod.UID, u, time.Now()))
		}
		m.workers.Unlock()
		synctest.Wait()
		if st, _ := m.State("b"); st.WaitingFor != "" || st.NextReason != "resync" {
			t.Errorf("the next pod: %+v, want it synced", st)
		}
		m.Update(Update{Type: CreateUpdate, Pod: podNamed("c")}) // the place is free
		synctest.Wait()
		if st, _ := m.State("c"); st.WaitingFor != "" || st.NextReason != "resync" {
			t.Errorf("a later pod: %+v, want it synced", st)
		}
	})
}

// No container may be started of a pod that ended without ever having begun.
func TestAPodThatNeverBeganCountsAsTerminating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, end := begin(t, Config{Syncer: nopSyncer{}})
		defer end()
		for _, uid := range []string{"holder", "waiting"} {
			p := podNamed(uid)
			p.Name, p.Annotations = "p", map[string]string{"kubernetes.io/config.source": "file"}
			m.Update(Update{Type: CreateUpdate, Pod: p})
		}
		m.Update(Update{Type: KillUpdate, Pod: podNamed("waiting")})
		synctest.Wait()
		if !m.KnownTerminated("waiting") {
			t.Error("its containers may be started")
		}
	})
}
