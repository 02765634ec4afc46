package podlife

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/seconds"
)

// DefaultGrace is the time to end of a pod that names none: the API's default of
// terminationGracePeriodSeconds.
const DefaultGrace = 30 * time.Second

// Grace returns how long a container of a pod has to end, or the whole pod if c is
// nil. It is, in this order:
//
//  1. the period of the pod's deletion, or the one that the cause gives, whichever is
//     shorter;
//  2. for a failed probe, the period of that probe (KEP-2238);
//  3. the period of the pod's spec;
//  4. [DefaultGrace].
//
// It is never negative. A nil pod is one that names nothing.
func Grace(pod *v1.Pod, c *v1.Container, why Cause) time.Duration {
	var deletion, spec *int64
	if pod != nil {
		deletion, spec = pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds
	}
	given := why.Grace
	if given == nil || deletion != nil && *deletion < *given {
		given = deletion
	}
	for _, s := range []*int64{given, ofProbe(c, why.Kind), spec} {
		if s != nil {
			return max(0, seconds.Of(*s))
		}
	}
	return DefaultGrace
}

// ofProbe is the period of the probe of c that failed, or nil.
func ofProbe(c *v1.Container, why Kind) *int64 {
	var p *v1.Probe
	switch {
	case c == nil:
	case why == LivenessFailed:
		p = c.LivenessProbe
	case why == StartupFailed:
		p = c.StartupProbe
	}
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}

// GraceSeconds is [Grace] in whole seconds, for a [Cause] or a request.
func GraceSeconds(pod *v1.Pod, why Cause) int64 { return int64(Grace(pod, nil, why) / time.Second) }
