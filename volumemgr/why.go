package volumemgr

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The state of volumes, for people, status pages and tests. Nothing here changes a record or
// waits for an operation.

// State says how far the mount of a volume is.
type State string

// The states. A volume that an earlier process left is uncertain until an operation on it has
// succeeded.
const (
	// StateWanted means that nothing is mounted yet: the volume waits for a slot, a
	// device or a back-off.
	StateWanted     State = "wanted"
	StateMounting   State = "mounting"
	StateMounted    State = "mounted"
	StateUncertain  State = "uncertain"
	StateUnmounting State = "unmounting"
)

// Status is the state of one volume.
type Status struct {
	// Names are the names in the pod's spec; Volume is the name on disk, and Path
	// its path.
	Names                []string
	Plugin, Volume, Path string
	State                State
	// Since is the start of the state, or of the running operation.
	Since time.Time
	// Refreshing reports that the content of the mounted volume is being updated. Hung reports
	// that the running operation has exceeded its deadline.
	Refreshing, Hung bool
	// Failures is the number of consecutive failures. First and Last are the errors of the first
	// and the last failure. They are "" if there are no failures.
	Failures        int
	First, Last     string
	FirstAt, LastAt time.Time
	// Next is the time of the next attempt; zero if none is planned.
	Next time.Time
}

// state returns the volume's state. A running operation takes precedence over the mount; but a
// mounted volume whose content is being updated is mounted. The caller holds m.mu.
func (v *volume) state() State {
	switch d := v.device; {
	case v.run.is() == opTearDown:
		return StateUnmounting
	case v.has == present:
		return StateMounted
	case v.run.is() == opSetUp, v.desired && d != nil && d.run.is() == opMountDevice:
		return StateMounting
	case v.has == uncertain:
		return StateUncertain
	default:
		return StateWanted
	}
}

// Why returns the state of each volume of the pod, sorted by plugin and name on disk. It returns
// nil if the pod has no volumes. The caller may modify the result.
func (m *Manager) Why(uid types.UID) []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	now := time.Now()
	out := make([]Status, 0, len(p.volumes))
	for _, v := range p.volumes {
		out = append(out, v.status(now))
	}
	slices.SortFunc(out, func(a, b Status) int {
		return strings.Compare(a.Plugin+"/"+a.Volume, b.Plugin+"/"+b.Volume)
	})
	return out
}

// status returns the Status of one volume. The caller holds m.mu.
func (v *volume) status(now time.Time) Status {
	s := Status{
		Names: slices.Clone(v.outer), Plugin: v.key.plugin, Volume: v.key.name, State: v.state(), Since: v.since,
		Refreshing: v.has == present && v.run.is() == opSetUp,
	}
	s.Path, _ = v.m.paths(v.pod.uid, v.key.plugin, v.key.name, v.key.block)
	f, r := &v.fails, v.run
	if d := v.device; d != nil && v.desired && d.has != present {
		// The volume waits for its device, so show the device's operation and failures.
		if d.fails.op == opMountDevice {
			f = &d.fails
		}
		if r == nil {
			r = d.run
		}
	}
	if r != nil {
		s.Since, s.Hung = r.started, r.overdue
	}
	if f.count > 0 {
		s.Failures, s.First, s.Last, s.FirstAt, s.LastAt = f.count, f.first.Error(), f.last.Error(), f.since, f.at
		if f.left(now) > 0 && r == nil && !v.abandoned {
			s.Next = f.until
		}
	}
	// If no retry is planned, the next set-up is due when the content expires.
	if s.Next.IsZero() && s.State == StateMounted && v.run == nil {
		s.Next = v.expires
	}
	return s
}

// Mounted reports whether a volume of the pod is mounted, may be mounted, or has a running
// operation. False means that this manager does not use the pod's directory.
func (m *Manager) Mounted(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return false
	}
	for _, v := range p.volumes {
		if v.has != absent || v.run != nil {
			return true
		}
	}
	return false
}

// Pods returns the pods that have or want volumes, sorted. Once Run has begun, that includes the
// pods whose volumes an earlier process left.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.pods))
}
