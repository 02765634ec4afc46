package podruntime

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/retry"
)

// Backoff is the policy for restarts of containers in a crash loop. The result of a method must
// depend on the argument alone, since a method may be called more than once for a crash, also after
// a restart of the agent. The methods may be called from any goroutine.
type Backoff interface {
	// Delay returns the time from the container's end to its restart. With 0 or less
	// it is restarted at once.
	Delay(c Crash) time.Duration
	// Recovered reports that the container ran well before this crash. The crash is then the first
	// of a new crash loop.
	Recovered(c Crash) bool
}

// Crash describes the end of a container that has to be restarted by its restart policy.
type Crash struct {
	Pod       *v1.Pod       // shared: read-only
	Container *v1.Container // its spec; shared: read-only

	// ExitCode and Reason (Error, OOMKilled, Completed, ...) come from the runtime.
	// For a container that was just killed they are nil and "".
	ExitCode *int32
	Reason   string
	// Lived is the wall-clock time from the container's start to its end. It is 0 if the
	// container never started.
	Lived time.Duration

	// Restarts is the number of restarts in this crash loop; 0 at its first crash.
	Restarts int
	// Last is the delay before the latest restart.
	Last time.Duration
}

// DoublingBackoff is the kubelet's policy: the first restart is immediate, the
// second waits for First, each later one twice as long as the one before it,
// and none longer than Max. A container that lived longer than 2*Max has
// recovered.
type DoublingBackoff struct {
	First time.Duration // the default is 10 s, or Max if that is less
	Max   time.Duration // the default is 5 min
}

// withDefaults returns d with First and Max of the kubelet's policy where they are zero.
func (d DoublingBackoff) withDefaults() DoublingBackoff {
	if d.Max <= 0 {
		d.Max = 5 * time.Minute
	}
	if d.First <= 0 {
		d.First = 10 * time.Second
	}
	d.First = min(d.First, d.Max)
	return d
}

// Delay returns 0 for the first crash of a loop, then First, then twice the last delay, up to
// Max.
func (d DoublingBackoff) Delay(c Crash) time.Duration {
	d = d.withDefaults()
	if c.Restarts == 0 {
		// The kubelet restarts at once after a first crash.
		return 0
	}
	return retry.Backoff{First: d.First, Max: d.Max}.Following(c.Last)
}

// Recovered reports whether the container lived longer than 2*Max.
func (d DoublingBackoff) Recovered(c Crash) bool {
	d = d.withDefaults()
	// Twice a larger Max would overflow; no container lives longer than that.
	return d.Max <= math.MaxInt64/2 && c.Lived > 2*d.Max
}

// ConstantBackoff waits equally long before every restart, the first included.
type ConstantBackoff time.Duration

// Delay returns b for every crash.
func (b ConstantBackoff) Delay(Crash) time.Duration { return time.Duration(b) }

// Recovered returns false: the delay does not depend on the length of the crash loop.
func (b ConstantBackoff) Recovered(Crash) bool { return false }

// ByExitCode chooses a policy by the exit code of the last instance. If Default is nil, the
// default is the kubelet's policy, DoublingBackoff{}.
type ByExitCode struct {
	// Codes has policies by exit code. For a code whose policy is nil, Default is used.
	Codes   map[int32]Backoff // must not change after New
	Default Backoff
}

// of returns the policy for a crash: the one of its exit code, or the default.
func (b ByExitCode) of(c Crash) Backoff {
	if c.ExitCode != nil {
		if p := b.Codes[*c.ExitCode]; p != nil {
			return p
		}
	}
	if b.Default != nil {
		return b.Default
	}
	return DoublingBackoff{}
}

// Delay returns the delay by the exit code's policy.
func (b ByExitCode) Delay(c Crash) time.Duration { return b.of(c).Delay(c) }

// Recovered returns the result of the policy for the exit code.
func (b ByExitCode) Recovered(c Crash) bool { return b.of(c).Recovered(c) }
