package podlife

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/seconds"
)

// DefaultGrace is the grace period of a pod whose spec has none: the API's default of
// terminationGracePeriodSeconds.
const DefaultGrace = 30 * time.Second

// Grace returns the grace period of a container of a pod, or of the whole pod if c is nil. It is
// the first of these that exists:
//
//  1. the period of the pod's deletion, or the one that the cause gives, whichever is
//     shorter;
//  2. for a failed probe, the period of that probe (KEP-2238);
//  3. the period of the pod's spec;
//  4. [DefaultGrace].
//
// The result is never negative. A nil pod counts as a pod without any of these periods.
func Grace(pod *v1.Pod, c *v1.Container, cause Cause) time.Duration {
	var deletion, spec *int64
	if pod != nil {
		deletion, spec = pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds
	}
	given := cause.Grace
	if given == nil || deletion != nil && *deletion < *given {
		given = deletion
	}
	for _, s := range []*int64{given, ofProbe(c, cause.Kind), spec} {
		if s != nil {
			return max(0, seconds.Of(*s))
		}
	}
	return DefaultGrace
}

// ofProbe returns the grace period of the probe of c that failed. It is nil if the probe has no
// grace period, or if kind is not a failed probe.
func ofProbe(c *v1.Container, kind Kind) *int64 {
	var p *v1.Probe
	switch {
	case c == nil:
	case kind == LivenessFailed:
		p = c.LivenessProbe
	case kind == StartupFailed:
		p = c.StartupProbe
	}
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}

// GraceSeconds is [Grace] in whole seconds, for a [Cause] or a request.
func GraceSeconds(pod *v1.Pod, cause Cause) int64 { return int64(Grace(pod, nil, cause) / time.Second) }
