package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/agent/local"
)

func getPods(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent get", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	output := fs.String("o", "", "the `format`: wide, json, yaml or name")
	also(fs, "o", "output")
	names, _, err := parse(fs, std, args)
	if err != nil {
		return err
	}
	if len(names) == 0 || !slices.Contains([]string{"pods", "pod", "po"}, names[0]) {
		return errors.New("get what? There is: get pods [NAME]")
	}
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, *output) {
		return fmt.Errorf("-o %q: want wide, json, yaml or name", *output)
	}
	cl := c.client()
	list, err := c.selected(ctx, cl, names[1:])
	if err != nil {
		return err
	}
	switch *output {
	case "json", "yaml":
		return printObjects(std.out, list, *output, len(names) == 2)
	case "name":
		for i := range list.Items {
			fmt.Fprintln(std.out, "pod/"+list.Items[i].Name)
		}
	default:
		if len(list.Items) == 0 {
			problems, err := cl.Problems(ctx)
			if err == nil && len(problems) > 0 {
				printProblems(std.err, problems)
			}
			return errors.New("no pods")
		}
		printTable(std.out, list, *output == "wide", time.Now())
	}
	if problems, err := cl.Problems(ctx); err == nil {
		printProblems(std.err, problems)
	}
	return nil
}

// selected lists the pods of those names, or all of the namespace.
func (c *clientFlags) selected(ctx context.Context, cl *local.Client, names []string) (*v1.PodList, error) {
	all, err := cl.Pods(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		out := &v1.PodList{TypeMeta: all.TypeMeta}
		for _, n := range names {
			p, err := c.find(ctx, cl, n)
			if err != nil {
				return nil, err
			}
			out.Items = append(out.Items, *p)
		}
		return out, nil
	}
	if c.namespace != "" {
		all.Items = slices.DeleteFunc(all.Items, func(p v1.Pod) bool { return p.Namespace != c.namespace })
	}
	return all, nil
}

func printObjects(w io.Writer, list *v1.PodList, format string, single bool) error {
	var v any = list
	if single && len(list.Items) == 1 {
		v = &list.Items[0]
	}
	b, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

func printTable(w io.Writer, list *v1.PodList, wide bool, now time.Time) {
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	defer func() { _ = tw.Flush() }()
	head := "NAMESPACE\tNAME\tREADY\tSTATUS\tRESTARTS\tAGE"
	if wide {
		head += "\tIP\tNODE"
	}
	fmt.Fprintln(tw, head)
	for i := range list.Items {
		p := &list.Items[i]
		ready, total, restarts := counts(p)
		row := fmt.Sprintf("%s\t%s\t%d/%d\t%s\t%d\t%s", p.Namespace, p.Name, ready, total, podState(p), restarts, age(p, now))
		if wide {
			row += "\t" + orNone(p.Status.PodIP) + "\t" + orNone(p.Spec.NodeName)
		}
		fmt.Fprintln(tw, row)
	}
}

// counts tells how many of the pod's lasting containers (regular ones and
// sidecars) are ready, how many there are, and how often any was restarted.
func counts(p *v1.Pod) (ready, total int, restarts int32) {
	lasting := map[string]bool{}
	for i := range p.Spec.Containers {
		lasting[p.Spec.Containers[i].Name] = true
	}
	for i := range p.Spec.InitContainers {
		if rp := p.Spec.InitContainers[i].RestartPolicy; rp != nil && *rp == v1.ContainerRestartPolicyAlways {
			lasting[p.Spec.InitContainers[i].Name] = true
		}
	}
	for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		if lasting[s.Name] {
			restarts += s.RestartCount
			if s.Ready {
				ready++
			}
		}
	}
	return ready, len(lasting), restarts
}

// podState is the one word that tells most about a pod: what keeps a
// container waiting, or how it ended, before the phase.
func podState(p *v1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	done := 0
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		sidecar := i < len(p.Spec.InitContainers) && p.Spec.InitContainers[i].RestartPolicy != nil
		switch {
		case s.State.Terminated != nil && s.State.Terminated.ExitCode == 0, sidecar && s.Started != nil && *s.Started:
			done++
			continue
		case s.State.Terminated != nil:
			return "Init:" + orWord(s.State.Terminated.Reason, "ExitCode:"+strconv.Itoa(int(s.State.Terminated.ExitCode)))
		case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
			return "Init:" + s.State.Waiting.Reason
		}
		if !terminalPhase(p.Status.Phase) {
			return fmt.Sprintf("Init:%d/%d", done, len(p.Spec.InitContainers))
		}
	}
	state, running := orWord(p.Status.Reason, string(p.Status.Phase)), false
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			return s.State.Waiting.Reason
		case s.State.Terminated != nil && p.Status.Reason == "":
			state = orWord(s.State.Terminated.Reason, "ExitCode:"+strconv.Itoa(int(s.State.Terminated.ExitCode)))
		case s.State.Running != nil:
			running = true
		}
	}
	if running && p.Status.Reason == "" {
		return string(p.Status.Phase)
	}
	return state
}

func terminalPhase(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

func age(p *v1.Pod, now time.Time) string {
	var start *metav1.Time
	switch {
	case !p.CreationTimestamp.IsZero():
		start = &p.CreationTimestamp
	case p.Status.StartTime != nil:
		start = p.Status.StartTime
	default:
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(start.Time))
}

// oneLine makes text fit for a line of a table: what breaks lines or speaks to
// the terminal (a container chooses the text of its messages) becomes a blank.
func oneLine(s string) string {
	blank := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }
	return strings.Join(strings.FieldsFunc(s, blank), " ")
}

func orWord(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func orNone(s string) string { return orWord(s, "<none>") }

func printProblems(w io.Writer, problems []local.Problem) {
	for _, p := range problems {
		fmt.Fprintln(w, "problem: "+problemLine(p))
	}
}

func problemLine(p local.Problem) string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.File == "" {
		b.WriteString(p.Source)
	}
	if p.Document > 0 {
		fmt.Fprintf(&b, " document %d", p.Document)
	}
	if p.Pod != "" {
		fmt.Fprintf(&b, " (%s)", p.Pod)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Reason)
	if p.Kept {
		b.WriteString("; its last good version stays in effect")
	}
	return b.String()
}
