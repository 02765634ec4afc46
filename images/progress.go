package images

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PullState is the state of a pull. A pull goes through Queued, Throttled and Pulling; after a
// failure it is HeldBack, and then starts again.
type PullState string

// The states of a pull.
const (
	Queued    PullState = "Queued"    // waits for a slot under Config.Parallel or ParallelPerRegistry
	Throttled PullState = "Throttled" // has a slot, and waits because of Config.QPS
	Pulling   PullState = "Pulling"   // the runtime is pulling
	HeldBack  PullState = "HeldBack"  // failed, and waits until RetryAt
)

// Pull describes a pull at one moment.
type Pull struct {
	// Image is the name with a tag or a digest. Registry is the host of its registry.
	Image          string
	Registry       string
	RuntimeHandler string

	State PullState
	Asked time.Time // time of the first request; zero if State is HeldBack
	Since time.Time // time when State began
	// Position is the position in the queue, counted from 1. It is 0 unless State is Queued.
	// Pulls from other registries may start earlier while this pull's registry has reached its
	// limit.
	Position int
	// Credential is the number of the credential in use, from 1 to Credentials. Both are 0 before
	// Pulling, and for a pull without credentials.
	Credential, Credentials int
	// Try is the number of the attempt, counted from 1. If several Pods wait, it is their highest
	// number. If State is HeldBack, it is the number of the next attempt.
	Try int
	// Received is how many bytes of the image have been received, and Total how many it has. Both are
	// 0 unless State is Pulling and the Service implements [Progress]: the CRI does not report them.
	Received, Total int64
	// Pods has the pods that wait for the pull.
	Pods []Waiter

	// RetryAt is the time of the next attempt and LastError the text of the last error. Both are
	// set only if State is HeldBack.
	RetryAt   time.Time
	LastError string
}

// Waiter is a pod that waits for a pull.
type Waiter struct {
	UID             types.UID
	Namespace, Name string
}

// Pulls returns the pulls that pods wait for: running ones, oldest first, then the queue in order.
// The only call to the runtime is [Progress].
func (m *Manager) Pulls() []Pull {
	m.mu.Lock()
	places := m.queue.positions()
	var out []Pull
	for _, f := range m.flights {
		out = append(out, m.describe(f, places))
	}
	m.mu.Unlock()
	m.measure(out)
	// Running pulls have position 0.
	slices.SortFunc(out, func(a, b Pull) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), a.Asked.Compare(b.Asked), byImage(a, b))
	})
	return out
}

// Waiting returns the pulls that one pod waits for, sorted by image, including pulls in
// back-off.
func (m *Manager) Waiting(uid types.UID) []Pull {
	out := m.waiting(uid)
	m.measure(out)
	slices.SortFunc(out, byImage)
	return out
}

// measure sets how far the pulls are, if the runtime reports it. Manager.mu is not held.
func (m *Manager) measure(pulls []Pull) {
	p, ok := m.cfg.Service.(Progress)
	if !ok {
		return
	}
	for i := range pulls {
		if pulls[i].State == Pulling {
			pulls[i].Received, pulls[i].Total = p.PullProgress(pulls[i].Image)
		}
	}
}

// waiting returns the pulls that one pod waits for.
func (m *Manager) waiting(uid types.UID) (out []Pull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	places := m.queue.positions()
	pulling := map[backoffKey]bool{}
	for _, f := range m.flights {
		if p := m.describe(f, places); slices.ContainsFunc(p.Pods, func(w Waiter) bool { return w.UID == uid }) {
			pulling[backoffKey{string(uid), p.Image, p.RuntimeHandler}] = true
			out = append(out, p)
		}
	}
	now := time.Now()
	for key, b := range m.failed {
		// A running pull replaces its earlier failure.
		if key.pod != string(uid) || pulling[key] || !now.Before(b.until) {
			continue
		}
		out = append(out, Pull{
			Image: key.image, Registry: registryOf(key.image), RuntimeHandler: key.handler,
			State: HeldBack, Since: b.until.Add(-b.delay), Try: b.failures + 1,
			Pods: []Waiter{b.pod}, RetryAt: b.until, LastError: b.last,
		})
	}
	return out
}

// byImage compares by image name and runtime handler.
func byImage(a, b Pull) int {
	return cmp.Or(strings.Compare(a.Image, b.Image), strings.Compare(a.RuntimeHandler, b.RuntimeHandler))
}

// describe returns the Pull of a flight. Manager.mu is held. It reads the field since of the
// ticket only for a flight that has left the queue.
func (m *Manager) describe(f *flight, places map[*ticket]int) Pull {
	p := Pull{
		Image: f.spec.GetImage(), Registry: f.place.registry, RuntimeHandler: f.spec.GetRuntimeHandler(),
		State: Queued, Asked: f.asked, Since: f.asked, Position: places[f.place], Try: 1,
	}
	switch {
	case p.Position > 0:
	case f.began.IsZero() && m.limit != nil:
		p.State, p.Since = Throttled, f.place.since
	case f.began.IsZero(): // PullImage is about to be called
		p.State, p.Since = Pulling, f.place.since
	default:
		p.State, p.Since = Pulling, f.began
		p.Credential, p.Credentials = f.trying, len(f.creds)
	}
	for w := range f.waiters {
		pod := Waiter{w.pod.UID, w.pod.Namespace, w.pod.Name}
		// Several containers of a pod may wait for the same image.
		if !slices.Contains(p.Pods, pod) {
			p.Pods = append(p.Pods, pod)
		}
		if b := m.failed[backoffKey{string(pod.UID), p.Image, p.RuntimeHandler}]; b != nil {
			p.Try = max(p.Try, b.failures+1)
		}
	}
	slices.SortFunc(p.Pods, func(a, b Waiter) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	return p
}
