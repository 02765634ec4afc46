package podtext

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Describe prints all details of one pod. why are the lines that explain the pod's state. The ages of
// events are relative to now.
func Describe(out io.Writer, p *v1.Pod, why []string, events []v1.Event, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	row := func(key, value string) { fmt.Fprintf(w, "%s:\t%s\n", key, OneLine(value)) }
	optional := func(key, value string) {
		if value != "" {
			row(key, value)
		}
	}
	row("Name", p.Name)
	row("Namespace", p.Namespace)
	row("UID", string(p.UID))
	if p.Spec.Priority != nil {
		row("Priority", fmt.Sprint(*p.Spec.Priority))
	}
	optional("Priority class", p.Spec.PriorityClassName)
	if p.Spec.RuntimeClassName != nil {
		row("Runtime class", *p.Spec.RuntimeClassName)
	}
	optional("Service account", p.Spec.ServiceAccountName)
	row("Node", p.Spec.NodeName)
	if t := p.Status.StartTime; t != nil {
		row("Start time", t.Format(time.RFC1123Z))
	}
	row("Labels", pairs(p.Labels))
	row("Annotations", pairs(p.Annotations))
	row("Status", State(p))
	for i, line := range why {
		if i == 0 {
			row("Why", "it "+line)
		} else {
			fmt.Fprintf(w, "\t%s\n", OneLine(line))
		}
	}
	if t := p.DeletionTimestamp; t != nil {
		row("Ends by", t.Format(time.RFC1123Z))
	}
	optional("Reason", p.Status.Reason)
	optional("Message", p.Status.Message)
	row("IP", OrNone(p.Status.PodIP))
	if len(p.Status.PodIPs) > 1 {
		row("IPs", joined(p.Status.PodIPs, func(ip v1.PodIP) string { return ip.IP }))
	}
	if len(p.OwnerReferences) > 0 {
		o := p.OwnerReferences[0]
		row("Owner", o.Kind+"/"+o.Name)
	}
	row("QoS class", string(p.Status.QOSClass))
	if len(p.Spec.NodeSelector) > 0 {
		row("Node selector", pairs(p.Spec.NodeSelector))
	}
	optional("Tolerations", joined(p.Spec.Tolerations, toleration))
	writeContainers(w, p)
	title := func(name string, n int) {
		if n == 0 {
			name += "  " + none
		}
		fmt.Fprintln(w, name)
	}
	title("Conditions:", len(p.Status.Conditions))
	for _, c := range p.Status.Conditions {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", c.Type, c.Status, OneLine(c.Reason), OneLine(c.Message))
	}
	title("Volumes:", len(p.Spec.Volumes))
	for i := range p.Spec.Volumes {
		fmt.Fprintf(w, "  %s:\t%s\n", p.Spec.Volumes[i].Name, OneLine(Volume(&p.Spec.Volumes[i])))
	}
	title("Events:", len(events))
	for i := range events {
		e := &events[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s ago (x%d)\t%s\n", e.Type, OneLine(e.Reason), from(e),
			duration.HumanDuration(now.Sub(e.LastTimestamp.Time)), e.Count, OneLine(e.Message))
	}
	return w.Flush()
}

// from returns the name of the container that an event refers to, or "pod" if there is none.
func from(e *v1.Event) string {
	path := e.InvolvedObject.FieldPath
	if _, name, ok := strings.Cut(path, "{"); ok {
		return OneLine(strings.TrimSuffix(name, "}"))
	}
	return "pod"
}

func toleration(t v1.Toleration) string {
	s := t.Key
	if t.Value != "" {
		s += "=" + t.Value
	}
	if t.Effect != "" {
		s += ":" + string(t.Effect)
	}
	if t.Operator == v1.TolerationOpExists {
		s = strings.TrimSpace(s + " op=Exists")
	}
	if t.TolerationSeconds != nil {
		s += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
	}
	return s
}

func pairs[V any](m map[string]V) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return OrNone(strings.Join(out, ", "))
}

func joined[T any](of []T, text func(T) string) string {
	var out []string
	for _, v := range of {
		out = append(out, text(v))
	}
	return strings.Join(out, ", ")
}
