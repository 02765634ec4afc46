package main

import (
	"context"
	"flag"
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

func describePod(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent describe", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	names, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	if len(names) > 0 && slices.Contains([]string{"pod", "pods", "po"}, names[0]) {
		names = names[1:]
	}
	if len(names) != 1 {
		return errPodName
	}
	cl := c.client()
	pod, err := c.findOrExplain(ctx, std, cl, names[0])
	if err != nil {
		return err
	}
	events, err := cl.Events(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	writePod(std.out, pod, events.Items, time.Now())
	return nil
}

func writePod(out io.Writer, p *v1.Pod, events []v1.Event, now time.Time) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer func() { _ = w.Flush() }()
	row := func(key, value string) { fmt.Fprintf(w, "%s:\t%s\n", key, oneLine(value)) }
	row("Name", p.Name)
	row("Namespace", p.Namespace)
	row("UID", string(p.UID))
	row("Node", p.Spec.NodeName)
	if t := p.Status.StartTime; t != nil {
		row("Start time", t.Format(time.RFC1123Z))
	}
	row("Labels", pairs(p.Labels))
	row("Annotations", pairs(p.Annotations))
	row("Status", podState(p))
	if p.Status.Message != "" {
		row("Message", p.Status.Message)
	}
	row("IP", orNone(p.Status.PodIP))
	row("QoS class", string(p.Status.QOSClass))
	for _, group := range []struct {
		title    string
		specs    []v1.Container
		statuses []v1.ContainerStatus
	}{
		{"Init containers", p.Spec.InitContainers, p.Status.InitContainerStatuses},
		{"Containers", p.Spec.Containers, p.Status.ContainerStatuses},
	} {
		if len(group.specs) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s:\n", group.title)
		for i := range group.specs {
			writeContainer(w, &group.specs[i], group.statuses)
		}
	}
	title := func(name string, n int) {
		if n == 0 {
			name += "  <none>"
		}
		fmt.Fprintln(w, name)
	}
	title("Conditions:", len(p.Status.Conditions))
	for _, c := range p.Status.Conditions {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", c.Type, c.Status, oneLine(c.Reason), oneLine(c.Message))
	}
	title("Events:", len(events))
	for _, e := range events {
		fmt.Fprintf(w, "  %s\t%s\t%s ago (x%d)\t%s\n", e.Type, e.Reason,
			duration.HumanDuration(now.Sub(e.LastTimestamp.Time)), e.Count, oneLine(e.Message))
	}
}

func writeContainer(w io.Writer, c *v1.Container, statuses []v1.ContainerStatus) {
	fmt.Fprintf(w, "  %s:\n    Image:\t%s\n", c.Name, c.Image)
	i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
	if i < 0 {
		return
	}
	s := &statuses[i]
	fmt.Fprintf(w, "    Container ID:\t%s\n    State:\t%s\n", orNone(s.ContainerID), stateLine(s.State))
	if s.LastTerminationState != (v1.ContainerState{}) {
		fmt.Fprintf(w, "    Last state:\t%s\n", stateLine(s.LastTerminationState))
	}
	fmt.Fprintf(w, "    Ready:\t%v\n    Restart count:\t%d\n", s.Ready, s.RestartCount)
}

func stateLine(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "Running since " + s.Running.StartedAt.Format(time.RFC1123Z)
	case s.Waiting != nil:
		return oneLine("Waiting " + inBrackets(s.Waiting.Reason) + s.Waiting.Message)
	case s.Terminated != nil:
		t := s.Terminated
		return oneLine(fmt.Sprintf("Terminated %sexit code %d %s", inBrackets(t.Reason), t.ExitCode, t.Message))
	default:
		return "Waiting"
	}
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ") "
}

func pairs(m map[string]string) string {
	if len(m) == 0 {
		return "<none>"
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ", ")
}

func why(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent why", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	names, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return errPodName
	}
	cl := c.client()
	if names[0] == "node" {
		return whyNode(ctx, std, cl)
	}
	pod, err := c.findOrExplain(ctx, std, cl, names[0])
	if err != nil {
		return err
	}
	w, err := cl.Why(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	now := time.Now()
	fmt.Fprintf(std.out, "%s/%s is %s (%s", w.Namespace, w.Name, podState(pod), w.Stage)
	if !w.Since.IsZero() {
		fmt.Fprintf(std.out, ", since %s", duration.HumanDuration(now.Sub(w.Since)))
	}
	fmt.Fprintln(std.out, ")")
	if w.WaitingFor != "" {
		fmt.Fprintln(std.out, "waits for: "+oneLine(w.WaitingFor))
	}
	if !w.NextAt.IsZero() {
		fmt.Fprintf(std.out, "next look: in %s", duration.HumanDuration(max(0, w.NextAt.Sub(now))))
		if w.NextReason != "" {
			fmt.Fprintf(std.out, " (%s)", w.NextReason)
		}
		fmt.Fprintln(std.out)
	}
	if w.LastError != "" {
		fmt.Fprintf(std.out, "last error: %s (%d in a row)\n", oneLine(w.LastError), w.Failures)
	}
	for _, ct := range w.Containers {
		fmt.Fprintf(std.out, "container %s: %s\n", ct.Name, oneLine(ct.State+" "+ct.Reason+" "+ct.Message))
	}
	return nil
}
