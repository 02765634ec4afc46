package pressure

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/node/stats"
)

// If the kernel does not count the usage of a volume, the reported usage is at most a minute old,
// as in the kubelet. A volume with a limit is measured again if the last measurement is older than
// freshVolume. Cheap measurements are made more often (see diskusage.Meter).
const (
	freshVolume = 5 * time.Second
	// walkTime limits the time of one measurement, and walksAtATime the number of concurrent
	// ones.
	walkTime     = 5 * time.Second
	walksAtATime = 4
)

// limitMeters measures volumes with limits. It does so only while its method run is
// running.
type limitMeters struct {
	walks sync.WaitGroup

	mu     sync.Mutex
	open   context.Context // context of run, nil before and after it; measurements end with it
	meters map[meterKey]*limitMeter
}

type meterKey struct {
	pod    types.UID
	volume string
}

type limitMeter struct {
	diskusage.Meter
	busy bool // guarded by limitMeters.mu
}

// run allows measurements until ctx ends, and returns when none is running.
func (l *limitMeters) run(ctx context.Context) {
	l.mu.Lock()
	l.open = ctx
	l.mu.Unlock()
	<-ctx.Done()
	l.mu.Lock()
	l.open = nil
	l.mu.Unlock()
	l.walks.Wait()
}

// start starts the measurement of a volume in its own goroutine, which ends with ctx and with
// run. It returns false if the volume is being measured already, or if run is not running.
func (l *limitMeters) start(ctx context.Context, k meterKey, measure func(context.Context, *diskusage.Meter)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.meters[k]
	if l.open == nil || m != nil && m.busy {
		return false
	}
	if m == nil {
		m = &limitMeter{}
		if l.meters == nil {
			l.meters = map[meterKey]*limitMeter{}
		}
		l.meters[k] = m
	}
	m.busy = true
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.open, cancel)
	l.walks.Go(func() {
		defer l.done(m)
		defer cancel()
		defer stop()
		measure(ctx, &m.Meter)
	})
	return true
}

func (l *limitMeters) done(m *limitMeter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.busy = false
}

// retain drops the volumes of pods for which keep returns false.
func (l *limitMeters) retain(keep func(types.UID) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.meters {
		if !keep(k.pod) {
			delete(l.meters, k)
		}
	}
}

// measured is a new measurement of a volume; zero if it failed.
type measured struct {
	of     *rank.Usage
	volume int
	now    diskusage.Usage
}

// freshen measures the volumes of pods that have limits, if their usage may be outdated. A volume
// that cannot be measured before ctx ends keeps its last usage.
func (f figures) freshen(ctx context.Context, pods []*v1.Pod, known map[types.UID]*rank.Usage) {
	f.limit.retain(f.wanted)
	// A measurement may take longer than ctx; its goroutine must not wait for a reader of the
	// result.
	results, slots, begun := make(chan measured), make(chan struct{}, walksAtATime), 0
	done := make(chan struct{})
	defer close(done)
	for _, p := range pods {
		u := known[p.UID]
		for i := 0; u != nil && i < len(u.Volumes); i++ {
			v := &u.Volumes[i]
			level, limited := rank.Level(rank.Candidate{Pod: p, Usage: u}, v.Name)
			if !limited || time.Since(v.Time) < freshVolume {
				continue
			}
			dir := filepath.Join(f.host.Dir(p.UID), "volumes", "kubernetes.io~empty-dir", v.Name)
			state := filepath.Join(f.host.Dir(p.UID), "plugins", "kubernetes.io~empty-dir", v.Name)
			if f.limit.start(ctx, meterKey{p.UID, v.Name}, func(ctx context.Context, m *diskusage.Meter) {
				now, err := diskusage.Quota(state)
				if err != nil {
					held := f.block.HeldIn(p.UID, v.Name)
					now = plus(walk(ctx, slots, m, dir, level-clamp(held.Bytes)), held)
				}
				r := measured{u, i, now}
				select {
				case results <- r:
				case <-done:
				}
			}) {
				begun++
			}
		}
	}
	for range begun {
		select {
		case r := <-results:
			noteVolume(r.of, r.volume, r.now)
		case <-ctx.Done():
			return
		}
	}
}

func (f figures) wanted(uid types.UID) bool {
	_, ok := f.host.Pod(uid)
	return ok
}

// walk measures a directory when a slot is free.
func walk(ctx context.Context, slots chan struct{}, m *diskusage.Meter, dir string, level int64) diskusage.Usage {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return diskusage.Usage{}
	}
	defer func() { <-slots }()
	now, err := m.Measure(ctx, dir, level, diskusage.Limits{Time: walkTime})
	if err != nil {
		return diskusage.Usage{}
	}
	return now
}

// plus returns the usage u plus a, the amount of removed files that are still open.
func plus(u diskusage.Usage, a stats.Amount) diskusage.Usage {
	if u.Used >= 0 {
		u.Used += clamp(a.Bytes)
	}
	if u.InodesUsed >= 0 {
		u.InodesUsed += clamp(a.Files)
	}
	return u
}

// noteVolume replaces the usage of a volume in the usage of its pod. If the new value is only a
// lower bound, it never reduces the usage.
func noteVolume(u *rank.Usage, volume int, now diskusage.Usage) {
	v := &u.Volumes[volume]
	if !now.At.After(v.Time) || now.AtLeast && now.Used < v.Used.Bytes {
		return
	}
	if u.EphemeralStorage > 0 { // which includes the volume
		u.EphemeralStorage += now.Used - v.Used.Bytes
	}
	if u.EphemeralInodes > 0 {
		u.EphemeralInodes += now.InodesUsed - v.Used.Inodes
	}
	v.Used, v.Time = rank.Disk{Bytes: now.Used, Inodes: now.InodesUsed}, now.At
}
