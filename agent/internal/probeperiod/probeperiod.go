// Package probeperiod reads the annotations with which a pod sets periods of probes that the API
// does not allow, such as 250 ms.
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

// Annotation begins the annotation that sets the period of a probe:
// probe-period.nodewright.io/<type>.<container>: "250ms", with the type in lower case.
const Annotation = "probe-period.nodewright.io/"

// minProbePeriod limits the CPU time that a probe can use.
const minProbePeriod = 10 * time.Millisecond

// Adjust changes a probe's timing by the pod's annotations. An invalid annotation has no effect;
// [Check] reports it.
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

// Check returns the errors in a pod's annotations of probe periods.
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
