package shutdown

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podlife"
)

// systemCritical is the least priority of a pod that the system needs
// (scheduling.SystemCriticalPriority).
const systemCritical int32 = 2000000000

// Group has the pods with priorities from Priority up to the Priority of the next group.
type Group struct {
	Priority int32
	// Time is the time that the pods of the group have to end, in whole seconds. If it is 0, the
	// pods are terminated at once, and nobody waits for them.
	Time time.Duration
}

// splitPeriods returns the groups for the kubelet's shutdownGracePeriod and
// shutdownGracePeriodCriticalPods. Pods of the system get the time critical; all others get the
// time requested minus critical. If requested is 0 or less than critical, it returns no groups,
// so that shutdowns are not handled.
func splitPeriods(requested, critical time.Duration) []Group {
	if requested <= 0 || critical < 0 || requested < critical {
		return nil
	}
	return []Group{{Priority: 0, Time: requested - critical}, {Priority: systemCritical, Time: critical}}
}

// validateGroups checks the settings of a shutdown, and reports all mistakes at once.
func validateGroups(requested, critical time.Duration, groups []Group) error {
	var errs []error
	period := func(name string, d time.Duration) {
		if d < 0 || d%time.Second != 0 {
			errs = append(errs, fmt.Errorf("%s is %v; want whole seconds, or 0", name, d))
		}
	}
	period("Requested", requested)
	period("Critical", critical)
	if critical > requested {
		errs = append(errs, fmt.Errorf("field Critical is %v; want at most Requested, %v", critical, requested))
	}
	if len(groups) > 0 && (requested != 0 || critical != 0) {
		errs = append(errs, errors.New("field Groups is set beside Requested or Critical; want one or the other"))
	}
	seen := map[int32]bool{}
	for i, g := range groups {
		period(fmt.Sprintf("Groups[%d].Time", i), g.Time)
		if seen[g.Priority] {
			errs = append(errs, fmt.Errorf("Groups[%d].Priority is %d; want each priority once", i, g.Priority))
		}
		seen[g.Priority] = true
	}
	return errors.Join(errs...)
}

// sorted returns the groups by priority, the lowest first.
func sorted(groups []Group) []Group {
	out := slices.Clone(groups)
	slices.SortFunc(out, func(a, b Group) int { return cmp.Compare(a.Priority, b.Priority) })
	return out
}

func total(groups []Group) (sum time.Duration) {
	for _, g := range groups {
		sum += g.Time
	}
	return sum
}

// groupOf returns the index of a pod's group: the group with the highest Priority that is not
// above the pod's priority, or the lowest group. A pod without a priority has the priority 0.
func groupOf(groups []Group, pod *v1.Pod) int {
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	for i := len(groups) - 1; i > 0; i-- {
		if groups[i].Priority <= priority {
			return i
		}
	}
	return 0
}

// grace returns the time in seconds that a pod gets to end: its own grace period, but
// at most the time within.
func grace(pod *v1.Pod, within time.Duration) int64 {
	return min(podlife.GraceSeconds(pod, podlife.Cause{}), int64(within/time.Second))
}

// Step is the termination of one group.
type Step struct {
	Group Group
	Kills []Kill
}

// Kill is a pod and its grace period in seconds.
type Kill struct {
	Pod   *v1.Pod
	Grace int64
}

// Plan returns the pods to terminate in each step, with their grace periods. The
// steps are in the order of priority, and groups without pods are left out; the
// order of the pods is kept.
func Plan(groups []Group, pods []*v1.Pod) []Step {
	groups = sorted(groups)
	steps := make([]Step, len(groups))
	for i, g := range groups {
		steps[i].Group = g
	}
	if len(groups) > 0 {
		for _, pod := range pods {
			i := groupOf(groups, pod)
			steps[i].Kills = append(steps[i].Kills, Kill{Pod: pod, Grace: grace(pod, groups[i].Time)})
		}
	}
	return slices.DeleteFunc(steps, func(s Step) bool { return len(s.Kills) == 0 })
}
