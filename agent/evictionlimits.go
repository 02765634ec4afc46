package agent

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/volumemgr/usage"
)

// What a volume holds that the kernel does not count, and nothing limits, is
// known to a minute, as with the kubelet. Where there is a limit it is measured
// anew unless it was just now, and as often as that costs next to nothing.
const (
	freshVolume = 5 * time.Second
	// walkTime bounds one walk, and walksAtATime how many there are.
	walkTime     = 5 * time.Second
	walksAtATime = 4
)

// limitMeters measure the volumes that have limits.
type limitMeters struct {
	mu     sync.Mutex
	meters map[meterKey]*limitMeter
}

type meterKey struct {
	pod    types.UID
	volume string
}

type limitMeter struct {
	usage.Meter
	busy bool // guarded by limitMeters.mu
}

// take returns a volume's meter, nil while it measures.
func (l *limitMeters) take(k meterKey) *limitMeter {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.meters[k]
	if m == nil {
		m = &limitMeter{}
		if l.meters == nil {
			l.meters = map[meterKey]*limitMeter{}
		}
		l.meters[k] = m
	}
	if m.busy {
		return nil
	}
	m.busy = true
	return m
}

func (l *limitMeters) put(m *limitMeter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.busy = false
}

// retain forgets the volumes of other pods.
func (l *limitMeters) retain(keep func(types.UID) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.meters {
		if !keep(k.pod) {
			delete(l.meters, k)
		}
	}
}

// freshen measures the volumes of pods that have limits, where what is known of
// them may be out of date. A volume that cannot be measured, or not before ctx
// ends, stays as it was known.
func (s evictionStats) freshen(ctx context.Context, pods []*v1.Pod, known map[types.UID]*rank.Usage) {
	type measured struct {
		of     *rank.Usage
		volume int
		now    usage.Usage
	}
	s.limits.retain(s.wanted)
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
			m := s.limits.take(meterKey{p.UID, v.Name})
			if m == nil {
				continue
			}
			begun++
			dir := filepath.Join(s.podDir(p.UID), "volumes", "kubernetes.io~empty-dir", v.Name)
			go func() { // a disk that does not answer keeps it, and nobody else
				slots <- struct{}{}
				now, err := m.Measure(ctx, dir, level, usage.Limits{Time: walkTime})
				<-slots
				s.limits.put(m)
				if err != nil {
					now = usage.Usage{}
				}
				select {
				case results <- measured{u, i, now}:
				case <-done:
				}
			}()
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

// noteVolume takes what a volume holds by now into a pod's figures.
func noteVolume(u *rank.Usage, volume int, now usage.Usage) {
	v := &u.Volumes[volume]
	if !now.At.After(v.Time) {
		return
	}
	if u.EphemeralStorage > 0 { // it is part of it
		u.EphemeralStorage += now.Used - v.Used.Bytes
	}
	v.Used, v.Time = rank.Disk{Bytes: now.Used, Inodes: now.InodesUsed}, now.At
}
