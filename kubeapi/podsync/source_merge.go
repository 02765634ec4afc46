package podsync

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/kubeapi/internal/follow"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

func sourceKeyOf(p *v1.Pod) apiclient.Key { return apiclient.Key{Namespace: p.Namespace, Name: p.Name} }

// replace takes the server's whole answer.
func (s *Source) replace(all []*v1.Pod, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.well()
	wiped := s.isWiped(version)
	s.version = version
	have := map[apiclient.Key]bool{}
	for _, p := range all {
		have[sourceKeyOf(p)] = true
		s.set(p)
	}
	held := 0
	for k, e := range s.pods {
		switch {
		case have[k], !e.held.IsZero():
		case wiped:
			e.held = time.Now().Add(s.cfg.WipeGrace)
			held++
		default:
			s.drop(k, e)
		}
	}
	s.changed = s.changed || !s.spoken
	if held > 0 {
		s.cfg.Log.Error("the API server's store was wiped or restored: pods that it does not have are kept for a while",
			zap.Int("pods", held), zap.Duration("for", s.cfg.WipeGrace), zap.String("version", version))
	}
	s.wake()
}

// isWiped reports whether the server has seen less than this node has. s.mu is
// held.
func (s *Source) isWiped(version string) bool {
	if follow.Older(version, s.version) {
		return true
	}
	for _, e := range s.pods {
		if e.held.IsZero() && follow.Older(version, e.pod.ResourceVersion) {
			return true
		}
	}
	return false
}

func (s *Source) put(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = p.ResourceVersion
	s.set(p)
}

func (s *Source) remove(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = p.ResourceVersion
	if e := s.pods[sourceKeyOf(p)]; e != nil && e.pod.UID == p.UID {
		s.drop(sourceKeyOf(p), e)
		s.wake()
	}
}

// set notes a pod's newest version. s.mu is held.
func (s *Source) set(p *v1.Pod) {
	k := sourceKeyOf(p)
	e := s.pods[k]
	if e != nil && e.pod.UID != p.UID {
		s.drop(k, e)
		e = nil
	}
	if e == nil {
		e = &entry{due: time.Now().Add(s.cfg.Gather), key: itemKey(kindPod, p)}
		s.pods[k] = e
	} else {
		e.held = time.Time{}
		if e.pod.ResourceVersion == p.ResourceVersion {
			return
		}
		if old := e.pod; old.DeletionTimestamp != nil && p.DeletionTimestamp == nil {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
		}
	}
	e.pod, e.out = p, nil
	s.refer(&e.refs, refsOf(p))
	s.changed = s.changed || e.delivered
	s.wake()
}

// drop forgets a pod. s.mu is held.
func (s *Source) drop(k apiclient.Key, e *entry) {
	delete(s.pods, k)
	s.changed = s.changed || e.delivered
	s.refer(&e.refs, nil)
}

// snapshot is what to deliver now, if anything, and when to look again.
func (s *Source) snapshot(now time.Time) (snap podmgr.Snapshot, ok bool, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	waiting := false
	for k, e := range s.pods {
		if !e.held.IsZero() {
			if now.Before(e.held) {
				look(e.held)
			} else {
				s.cfg.Log.Warn("a pod that the wiped API server does not have is ended", zap.Stringer("pod", k))
				s.drop(k, e)
				continue
			}
		}
		if e.delivered {
			continue
		}
		if s.waits(e, now) {
			look(e.due)
			waiting = true
			continue
		}
		s.changed = true
	}
	switch {
	case !s.changed, !s.synced && (len(s.pods) == 0 || !s.patient && !s.troubled), !s.spoken && waiting:
		return snap, false, next
	}
	for _, e := range s.pods {
		if s.waits(e, now) {
			continue
		}
		e.delivered = true
		if e.out == nil {
			e.out = handOut(e.pod)
		}
		snap.Pods = append(snap.Pods, e.out)
	}
	slices.SortFunc(snap.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.addObjects(&snap)
	s.changed, s.spoken = false, true
	return snap, true, next
}

// handOut is a pod whose owner may annotate it. All else is shared.
func handOut(p *v1.Pod) *v1.Pod {
	c := *p
	c.Annotations = make(map[string]string, len(p.Annotations)+2)
	for k, v := range p.Annotations {
		c.Annotations[k] = v
	}
	delete(c.Annotations, podmeta.AnnotationSeen) // the node's own
	return &c
}
