package podtext

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// WriteTable prints pods, a line each. now is the time for their ages. A wide table
// also has addresses and nodes.
func WriteTable(w io.Writer, pods []v1.Pod, wide bool, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, header(wide))
	for i := range pods {
		fmt.Fprintln(tw, row(&pods[i], wide, now))
	}
	return tw.Flush()
}

func header(wide bool) string {
	head := "NAMESPACE\tNAME\tREADY\tSTATUS\tRESTARTS\tAGE"
	if wide {
		head += "\tIP\tNODE"
	}
	return head
}

// row is one pod's line, in columns that tabs end.
func row(p *v1.Pod, wide bool, now time.Time) string {
	ready, total, restarts := Counts(p)
	line := fmt.Sprintf("%s\t%s\t%d/%d\t%s\t%d\t%s", p.Namespace, p.Name, ready, total, OneLine(State(p)), restarts, Age(p, now))
	if wide {
		line += "\t" + OneLine(OrNone(p.Status.PodIP)) + "\t" + OrNone(p.Spec.NodeName)
	}
	return line
}

// Counts returns how many of the pod's lasting containers (regular ones and
// sidecars) are ready, their total, and the restarts of all its containers.
func Counts(p *v1.Pod) (ready, total int, restarts int32) {
	lasting := map[string]bool{}
	for i := range p.Spec.Containers {
		lasting[p.Spec.Containers[i].Name] = true
	}
	for i := range p.Spec.InitContainers {
		if name := p.Spec.InitContainers[i].Name; isSidecar(p, name) {
			lasting[name] = true
		}
	}
	for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		restarts += s.RestartCount
		if lasting[s.Name] && s.Ready {
			ready++
		}
	}
	return ready, len(lasting), restarts
}

func isSidecar(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
}

// Age returns the time since a pod's creation; since its start if the creation time
// is unknown.
func Age(p *v1.Pod, now time.Time) string {
	var start *metav1.Time
	switch {
	case !p.CreationTimestamp.IsZero():
		start = &p.CreationTimestamp
	case !p.Status.StartTime.IsZero():
		start = p.Status.StartTime
	default:
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(start.Time))
}
