// Package probeperiod reads the annotations by which a pod gives its probes
// periods that the API has no room for, such as 250 ms.
package probeperiod

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
)

// Annotation gives a probe a period that the API has no room for:
// probe-period.nodewright.io/<type>.<container>: "250ms", the type in lower
// case.
const Annotation = "probe-period.nodewright.io/"

// minProbePeriod keeps a probe from being all that a node does.
const minProbePeriod = 10 * time.Millisecond

// Adjust applies the pod's own wishes to a probe's timing. One that is
// wrong has no effect; [Check] reports it.
func Adjust(pod *v1.Pod, c *v1.Container, t probe.Type, timing *check.Timing) {
	if v, ok := pod.Annotations[Annotation+strings.ToLower(t.String())+"."+c.Name]; ok {
		if d, err := probePeriod(v); err == nil {
			timing.Period = d
		}
	}
}

func probePeriod(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < minProbePeriod {
		return 0, fmt.Errorf("%q: want a duration of %v or more, such as 250ms", v, minProbePeriod)
	}
	return d, nil
}

// Check reports what is wrong with the periods in a pod's
// annotations.
func Check(pod *v1.Pod) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		of, ok := strings.CutPrefix(key, Annotation)
		if !ok {
			continue
		}
		typ, name, _ := strings.Cut(of, ".")
		known := slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c v1.Container) bool {
			return c.Name == name && (typ == "startup" && c.StartupProbe != nil || typ == "readiness" && c.ReadinessProbe != nil || typ == "liveness" && c.LivenessProbe != nil)
		})
		if !known {
			errs = append(errs, fmt.Errorf("metadata.annotations[%s]: no such probe; want startup, readiness or liveness, a dot, and a container that has it", key))
		} else if _, err := probePeriod(pod.Annotations[key]); err != nil {
			errs = append(errs, fmt.Errorf("metadata.annotations[%s]: %w", key, err))
		}
	}
	return errors.Join(errs...)
}
