package podsync

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// replace replaces all pods by the pods of a list. The follower calls it after each list, before
// put and remove.
func (s *Source) replace(all []*v1.Pod, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.synced
	s.well()
	// This check comes before any change: later, s.version and the pods have the versions of the
	// answer.
	wiped := s.isWiped(version)
	s.version = version
	have := map[kubeapi.Key]bool{}
	for _, p := range all {
		have[keyOf(p)] = true
		s.set(p)
		s.pods[keyOf(p)].early = first
	}
	held := 0
	for k, e := range s.pods {
		if wiped {
			e.over = nil // its version is from the lost store
		}
		switch {
		// A second answer of the wiped server does not restart wipeGrace.
		case have[k], !e.held.IsZero():
		case wiped:
			e.held = time.Now().Add(wipeGrace)
			held++
		default:
			s.drop(k, e)
		}
	}
	// An empty first answer is delivered too: it means that there are no pods.
	s.changed = s.changed || !s.delivered
	if held > 0 {
		s.cfg.Log.Error("API server lost its store or restored a backup; keeping missing pods for a while",
			zap.Int("pods", held), zap.Duration("for", wipeGrace), zap.String("version", version))
	}
	s.signal.Set()
}

// isWiped reports whether the server's version is older than one that this node has seen:
// its store was wiped or restored. The caller holds s.mu.
func (s *Source) isWiped(version string) bool {
	// Versions grow with each write to the store, whatever object it is of.
	if kubeapi.Older(version, s.version) {
		return true
	}
	for _, e := range s.pods {
		if e.held.IsZero() && kubeapi.Older(version, e.pod.ResourceVersion) {
			return true
		}
	}
	return false
}

// put records a pod that was added or modified.
func (s *Source) put(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = p.ResourceVersion
	s.set(p)
}

// remove records the deletion of a pod. It does nothing if another pod has replaced the
// pod under its name.
func (s *Source) remove(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = p.ResourceVersion
	if e := s.pods[keyOf(p)]; e != nil && e.pod.UID == p.UID {
		s.drop(keyOf(p), e)
		s.signal.Set()
	}
}

// set records the newest version of a pod, and owns p. The caller holds s.mu.
func (s *Source) set(p *v1.Pod) {
	k := keyOf(p)
	e := s.pods[k]
	// If the UID has changed, the old pod has ended.
	if e != nil && e.pod.UID != p.UID {
		s.drop(k, e)
		e = nil
	}
	if e == nil {
		e = &entry{due: time.Now().Add(gatherTime), key: itemKey(kindPod, p)}
		s.pods[k] = e
	} else {
		// The server has the pod again: its store was repaired.
		e.held = time.Time{}
		if e.pod.ResourceVersion == p.ResourceVersion {
			return
		}
		// The API never undoes a deletion. This server's store was restored, and the pod is being
		// stopped already.
		if old := e.pod; old.DeletionTimestamp != nil && p.DeletionTimestamp == nil {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
		}
	}
	e.pod, e.out = p, nil
	if e.over != nil && !kubeapi.Older(p.ResourceVersion, e.over.ResourceVersion) {
		e.over = nil
	}
	// Before the pod is delivered, so that waits knows the objects to wait for.
	s.refer(&e.refs, refsOf(p))
	s.changed = s.changed || e.delivered
	s.signal.Set()
}

// drop forgets a pod. The caller holds s.mu.
func (s *Source) drop(k kubeapi.Key, e *entry) {
	delete(s.pods, k)
	s.changed = s.changed || e.delivered
	s.refer(&e.refs, nil)
}

// snapshot returns the snapshot to deliver now. ok is false if there is none, and next is the
// time at which to check again. Run calls it. Pods that wait for their objects are left out,
// without delaying the others. A snapshot is partial until the server has answered, and while
// pods of its first answer wait for their objects: these pods may have been running since before
// a restart of the agent, and are missing in the snapshot.
func (s *Source) snapshot(now time.Time) (snap podmgr.Snapshot, ok bool, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	waiting, partial := false, !s.synced
	for k, e := range s.pods {
		if !e.held.IsZero() {
			// A held pod is delivered as before; only its termination is postponed.
			if now.Before(e.held) {
				look(e.held)
			} else {
				s.cfg.Log.Warn("ending pod: the API server's store was lost or restored, and no longer has the pod", zap.Stringer("pod", k))
				s.drop(k, e)
				continue
			}
		}
		if e.delivered {
			continue
		}
		if s.waits(e, now) {
			look(e.due)
			waiting, partial = true, partial || e.early
			continue
		}
		s.changed = true
	}
	// The pods that were missing may have been deleted since.
	s.changed = s.changed || s.partial && !partial
	switch {
	// There is no snapshot in three cases: nothing has changed; no server has answered, and there
	// are no stored pods, or neither an error nor the end of sourceTimeout has come; or the first
	// snapshot would lack pods.
	case !s.changed, !s.synced && (len(s.pods) == 0 || !s.waited && !s.troubled), !s.delivered && waiting:
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
	// Sorted by age: after a restart the oldest pods are admitted first, as by the kubelet.
	slices.SortFunc(snap.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.addObjects(&snap)
	snap.Partial = partial
	s.changed, s.delivered, s.partial = false, true, partial
	return snap, true, next
}

// handOut returns a copy of a pod, with a copy of its annotations; everything else is
// shared. podmgr changes the annotations, while the sink compares statuses with the
// API's unchanged object.
func handOut(p *v1.Pod) *v1.Pod {
	c := *p
	c.Annotations = make(map[string]string, len(p.Annotations)+2)
	for k, v := range p.Annotations {
		c.Annotations[k] = v
	}
	delete(c.Annotations, podmeta.AnnotationSeen) // the node's own
	return &c
}
