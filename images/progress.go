package images

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PullState is how far a pull is. It goes down the list below, but for
// HeldBack, from which it starts again.
type PullState string

// The states of a pull.
const (
	Queued    PullState = "Queued"    // waits for one of Config.Parallel or ParallelPerRegistry
	Throttled PullState = "Throttled" // has its place, waits for Config.QPS
	Pulling   PullState = "Pulling"   // the runtime is at it
	HeldBack  PullState = "HeldBack"  // failed not long ago, and waits for RetryAt
)

// Pull is what is known of a pull. A runtime reports nothing of the bytes that
// it has, so there are none here; time and place are what there is. It is a
// copy of one moment.
type Pull struct {
	// Image is its name, with a tag or a digest; Registry the host that it
	// comes from.
	Image          string
	Registry       string
	RuntimeHandler string

	State PullState
	Asked time.Time // when it was first waited for; zero when HeldBack
	Since time.Time // when State began
	// Position is the place in the queue of all registries, from 1; 0 when
	// not Queued. Those before it whose registry is full may be passed.
	Position int
	// Credential says which of so many Credentials is tried, from 1; both
	// are 0 until Pulling, and for a pull without any.
	Credential, Credentials int
	// Try counts from 1 how often it was tried in a row, by the one of Pods
	// that failed most. When HeldBack, it is the one to come.
	Try int
	// Pods are those that wait for it.
	Pods []Waiter

	// RetryAt is when it is tried again and LastError what went wrong, as
	// the event told it; only when HeldBack.
	RetryAt   time.Time
	LastError string
}

// Waiter is a pod that waits for a pull.
type Waiter struct {
	UID             types.UID
	Namespace, Name string
}

// Pulls returns the pulls that somebody waits for: those that have a place,
// the oldest first, and then the queue in its order. It does not ask the
// runtime, and does not block for long.
func (m *Manager) Pulls() []Pull {
	m.mu.Lock()
	defer m.mu.Unlock()
	places := m.queue.positions()
	var out []Pull
	for _, f := range m.flights {
		out = append(out, m.describe(f, places))
	}
	// Those with a place have position 0.
	slices.SortFunc(out, func(a, b Pull) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), a.Asked.Compare(b.Asked), byImage(a, b))
	})
	return out
}

// Waiting returns what one pod waits for, by the names of the images: pulls,
// and those that are held back because they failed.
func (m *Manager) Waiting(uid types.UID) []Pull {
	m.mu.Lock()
	defer m.mu.Unlock()
	places := m.queue.positions()
	var out []Pull
	pulling := map[backoffKey]bool{}
	for _, f := range m.flights {
		if p := m.describe(f, places); slices.ContainsFunc(p.Pods, func(w Waiter) bool { return w.UID == uid }) {
			pulling[backoffKey{string(uid), p.Image, p.RuntimeHandler}] = true
			out = append(out, p)
		}
	}
	now := time.Now()
	for key, b := range m.failed {
		// A pull that goes on already says more than the failure before it.
		if key.pod != string(uid) || pulling[key] || !now.Before(b.until) {
			continue
		}
		out = append(out, Pull{
			Image: key.image, Registry: registryOf(key.image), RuntimeHandler: key.handler,
			State: HeldBack, Since: b.until.Add(-b.delay), Try: b.failures + 1,
			Pods: []Waiter{b.pod}, RetryAt: b.until, LastError: b.last,
		})
	}
	slices.SortFunc(out, byImage)
	return out
}

// byImage orders by name and runtime handler, which are together what a pod
// waits for.
func byImage(a, b Pull) int {
	return cmp.Or(strings.Compare(a.Image, b.Image), strings.Compare(a.RuntimeHandler, b.RuntimeHandler))
}

// describe needs Manager.mu. It reads the ticket's since only for a flight that
// has left the queue.
func (m *Manager) describe(f *flight, places map[*ticket]int) Pull {
	p := Pull{
		Image: f.spec.GetImage(), Registry: f.place.registry, RuntimeHandler: f.spec.GetRuntimeHandler(),
		State: Queued, Asked: f.asked, Since: f.asked, Position: places[f.place], Try: 1,
	}
	switch {
	case p.Position > 0:
	case f.began.IsZero() && m.limit != nil:
		p.State, p.Since = Throttled, f.place.since
	case f.began.IsZero(): // about to
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
