package podlife

import (
	"fmt"
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/seconds"
)

func TestGrace(t *testing.T) {
	sec := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		name                                     string
		deletion, given, spec, liveness, startup *int64
		kind                                     Kind
		want                                     time.Duration
	}{
		{"nothing named", nil, nil, nil, nil, nil, "", DefaultGrace},
		{"spec", nil, nil, sec(20), nil, nil, "", 20 * time.Second},
		{"spec of zero", nil, nil, sec(0), nil, nil, "", 0},
		{"deletion before spec", nil, nil, sec(20), nil, nil, Changed, 20 * time.Second},
		{"longer deletion", sec(90), nil, sec(20), nil, nil, "", 90 * time.Second},
		{"a longer time that is given", nil, sec(90), sec(20), nil, nil, "", 90 * time.Second},
		{"given below deletion", sec(9), sec(3), sec(20), nil, nil, "", 3 * time.Second},
		{"given above deletion", sec(9), sec(30), sec(20), nil, nil, "", 9 * time.Second},
		{"liveness", nil, nil, sec(20), sec(7), sec(8), LivenessFailed, 7 * time.Second},
		{"longer for liveness", nil, nil, sec(20), sec(70), sec(8), LivenessFailed, 70 * time.Second},
		{"startup", nil, nil, sec(20), sec(7), sec(8), StartupFailed, 8 * time.Second},
		{"another kind", nil, nil, sec(20), sec(7), sec(8), Changed, 20 * time.Second},
		{"a probe without its own", nil, nil, sec(20), nil, nil, LivenessFailed, 20 * time.Second},
		{"a probe of a pod that is deleted", sec(3), nil, sec(20), sec(7), nil, LivenessFailed, 3 * time.Second},
		{"negative", nil, nil, sec(-5), nil, nil, "", 0},
		{"more than a duration holds", nil, nil, sec(math.MaxInt64), nil, nil, "", seconds.Max},
	} {
		pod := graced(tc.deletion, tc.spec)
		c := &v1.Container{LivenessProbe: &v1.Probe{TerminationGracePeriodSeconds: tc.liveness}, StartupProbe: &v1.Probe{TerminationGracePeriodSeconds: tc.startup}}
		if got := Grace(pod, c, Cause{Kind: tc.kind, Grace: tc.given}); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if Grace(nil, nil, Cause{}) != DefaultGrace {
		t.Error("a pod of which nothing is known")
	}
}

func graced(deletion, spec *int64) *v1.Pod {
	pod := &v1.Pod{}
	pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = deletion, spec
	return pod
}

// The rules that blocks of this module had before they shared one, and each difference
// from it, over all combinations of periods.
func TestGraceAgainstTheRulesBefore(t *testing.T) {
	var periods []*int64
	for _, n := range []int64{-7, 0, 1, 5, 30, 70, math.MaxInt64} {
		periods = append(periods, &n)
	}
	periods = append(periods, nil)
	secs := func(s *int64) time.Duration { return seconds.Of(*s) }
	for _, deletion := range periods {
		for _, spec := range periods {
			for _, given := range periods {
				for _, own := range periods {
					pod, why := graced(deletion, spec), Cause{Kind: LivenessFailed, Grace: given}
					c := &v1.Container{LivenessProbe: &v1.Probe{TerminationGracePeriodSeconds: own}}
					name := fmt.Sprintf("deletion %s, spec %s, given %s, probe %s", text(deletion), text(spec), text(given), text(own))
					nothing := deletion == nil && spec == nil && given == nil

					// podruntime, for one container.
					var old time.Duration
					switch {
					case given != nil:
						old = max(0, secs(given))
					case deletion != nil:
						old = max(0, secs(deletion))
					case spec == nil:
						old = 2 * time.Second
					case own != nil:
						old = max(0, secs(own))
					default:
						old = max(0, secs(spec))
					}
					switch got := Grace(pod, c, why); {
					case got == old:
					case nothing && own == nil && got == DefaultGrace: // 2 s before: a pod without a spec has the API's default
					case nothing && got == max(0, secs(own)): // the probe's own counts without a spec as well
					case given != nil && deletion != nil && *deletion < *given && got == max(0, secs(deletion)): // whoever gives time does not lengthen a deletion
					default:
						t.Errorf("a container: %s: %v, was %v", name, got, old)
					}

					// podworker, for the pod; it adds the least of a second.
					least := deletion
					if least == nil || given != nil && *given < *least {
						least = given
					}
					if least == nil {
						least = spec
					}
					old = time.Second
					if least != nil {
						old = max(time.Second, secs(least))
					}
					if got := max(time.Second, Grace(pod, nil, why)); got != old && !(nothing && got == DefaultGrace) { // 1 s before
						t.Errorf("the pod: %s: %v, was %v", name, got, old)
					}

					// Whoever waits for the end of a pod.
					if given == nil {
						old = DefaultGrace
						for _, s := range []*int64{spec, deletion} {
							if s != nil {
								old = max(0, secs(s)) // what was negative ended before now
							}
						}
						if got := Grace(pod, nil, Cause{}); got != old {
							t.Errorf("who waits: %s: %v, was %v", name, got, old)
						}
					}

					// Preemption and a soft eviction without a limit.
					if given == nil && deletion == nil {
						old = DefaultGrace
						if spec != nil {
							old = max(0, secs(spec))
						}
						if got := Grace(pod, nil, Cause{}); got != old {
							t.Errorf("eviction: %s: %v, was %v", name, got, old)
						}
					}
				}
			}
		}
	}
}

func text(s *int64) string {
	if s == nil {
		return "none"
	}
	return fmt.Sprint(*s)
}
