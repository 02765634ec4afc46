package podworker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podworker"
)

// countingSyncer does nothing but tell of the generations that it has seen.
type countingSyncer struct {
	synced func(w podworker.Work)
	ended  func(w podworker.Work)
}

func (s *countingSyncer) SyncPod(_ context.Context, w podworker.Work) (podworker.Outcome, error) {
	if s.synced != nil {
		s.synced(w)
	}
	return podworker.Outcome{}, nil
}

func (s *countingSyncer) SyncTerminatingPod(context.Context, podworker.Work) error        { return nil }
func (s *countingSyncer) SyncTerminatingRuntimePod(context.Context, podworker.Work) error { return nil }

func (s *countingSyncer) SyncTerminatedPod(_ context.Context, w podworker.Work) error {
	if s.ended != nil {
		s.ended(w)
	}
	return nil
}

// benchManager is a running Manager that ends with the benchmark.
func benchManager(b *testing.B, s podworker.Syncer) *podworker.Manager {
	b.Helper()
	return benchManagerOf(b, podworker.Config{Syncer: s})
}

func benchManagerOf(b *testing.B, cfg podworker.Config) *podworker.Manager {
	b.Helper()
	m, err := podworker.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx) // always nil
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
	})
	return m
}

// generations makes n pods with rounds objects each, so that no update is
// made within the measured time.
func generations(n, rounds int) [][]*v1.Pod {
	all := make([][]*v1.Pod, n)
	for i := range all {
		for g := range rounds {
			p := newPod(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), fmt.Sprintf("pod-%d", i))
			p.Generation = int64(g)
			all[i] = append(all[i], p)
		}
	}
	return all
}

// reportUpdates adds updates/s and allocations per update to what the
// benchmark says of a whole pass of n updates.
func reportUpdates(b *testing.B, n int, pass func()) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		pass()
	}
	runtime.ReadMemStats(&after)
	total := float64(n) * float64(b.N)
	b.ReportMetric(total/b.Elapsed().Seconds(), "updates/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/total, "allocs/update")
}

// BenchmarkFlood gives each of 1,000 pods 100 updates as fast as they are
// taken, from one goroutine as the agent's loop does, and waits until every
// pod has been synced with its last one.
func BenchmarkFlood(b *testing.B) {
	const pods, rounds = 1000, 100
	all := generations(pods, rounds)
	var last sync.WaitGroup
	m := benchManager(b, &countingSyncer{synced: func(w podworker.Work) {
		if w.Pod.Generation == rounds-1 && w.Type == podworker.ConfigUpdate {
			last.Done()
		}
	}})
	reportUpdates(b, pods*rounds, func() {
		last.Add(pods)
		for g := range rounds {
			for i := range all {
				m.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: all[i][g]})
			}
		}
		last.Wait()
	})
}

// BenchmarkRounds gives each of 1,000 pods one update, waits until all have
// been synced, and goes on: nothing coalesces.
func BenchmarkRounds(b *testing.B) {
	const pods = 1000
	all := generations(pods, 1)
	var round sync.WaitGroup
	m := benchManager(b, &countingSyncer{synced: func(podworker.Work) { round.Done() }})
	reportUpdates(b, pods, func() {
		round.Add(pods)
		for i := range all {
			m.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: all[i][0]})
		}
		round.Wait()
	})
}

// BenchmarkPingPong is the way of one update of one pod to its syncer and
// back.
func BenchmarkPingPong(b *testing.B) {
	p := newPod("uid", "pod")
	seen := make(chan struct{})
	m := benchManager(b, &countingSyncer{synced: func(podworker.Work) { seen <- struct{}{} }})
	reportUpdates(b, 1, func() {
		m.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: p})
		<-seen
	})
}

// BenchmarkCreateTerminate is the whole life of 1,000 pods: created, synced,
// ended, cleaned up after and forgotten.
func BenchmarkCreateTerminate(b *testing.B) {
	const pods = 1000
	all := generations(pods, 1)
	var begun, ended sync.WaitGroup
	first := make([]atomic.Bool, pods)
	index := make(map[string]int, pods)
	for i := range all {
		index[all[i][0].Name] = i
	}
	m := benchManager(b, &countingSyncer{
		synced: func(w podworker.Work) {
			if first[index[w.Pod.Name]].CompareAndSwap(false, true) {
				begun.Done()
			}
		},
		ended: func(podworker.Work) { ended.Done() },
	})
	reportUpdates(b, 2*pods, func() {
		begun.Add(pods)
		ended.Add(pods)
		for i := range all {
			first[i].Store(false)
			m.Update(create(all[i][0]))
		}
		begun.Wait()
		for i := range all {
			m.Update(kill(all[i][0], nil))
		}
		ended.Wait()
		for len(m.SyncKnownPods(nil)) > 0 { // a worker may not have noted its end yet
			runtime.Gosched()
		}
	})
}

// BenchmarkCoalesce is what an update costs that joins another, which waits
// for a call in flight.
func BenchmarkCoalesce(b *testing.B) {
	const pods, rounds = 1000, 100
	all := generations(pods, rounds)
	var begun sync.WaitGroup
	begun.Add(pods)
	ended := make(chan struct{})
	m := benchManagerOf(b, podworker.Config{FirstSyncs: pods, Syncer: &countingSyncer{synced: func(podworker.Work) {
		begun.Done()
		<-ended
	}}})
	b.Cleanup(func() { close(ended) })
	for i := range all {
		m.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: all[i][0]})
	}
	begun.Wait()
	reportUpdates(b, pods*rounds, func() {
		for g := range rounds {
			for i := range all {
				m.Update(podworker.Update{Type: podworker.ConfigUpdate, Pod: all[i][g]})
			}
		}
	})
}
