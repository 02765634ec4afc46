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
	names, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("get what? There is: get pods [NAME]")
	}
	if !slices.Contains([]string{"pods", "pod", "po"}, names[0]) {
		return fmt.Errorf("get %q? There is: get pods [NAME]", names[0])
	}
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, *output) {
		return fmt.Errorf("-o %q: want wide, json, yaml or name", *output)
	}
	cl := c.client()
	list, err := c.selected(ctx, std, cl, names[1:])
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
		if len(list.Items) > 0 {
			printTable(std.out, list, *output == "wide", time.Now())
			break
		}
		err = errors.New("no pods")
		if c.namespace != "" {
			err = fmt.Errorf("no pods in namespace %q", c.namespace)
		}
	}
	if problems, perr := cl.Problems(ctx); perr == nil {
		printProblems(std.err, problems)
	}
	return err
}

// selected lists the pods of those names, or all of the namespace.
func (c *clientFlags) selected(ctx context.Context, std stdio, cl *local.Client, names []string) (*v1.PodList, error) {
	all, err := cl.Pods(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		out := &v1.PodList{TypeMeta: all.TypeMeta}
		for _, n := range names {
			p, err := c.findOrExplain(ctx, std, cl, n)
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
// sidecars) are ready, how many there are, and how often any container of the
// pod was restarted.
func counts(p *v1.Pod) (ready, total int, restarts int32) {
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

// podState is the one word that tells most about a pod: what keeps a
// container waiting, or how it ended, before the phase.
func podState(p *v1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	if s := initState(p); s != "" {
		return s
	}
	phase := orWord(string(p.Status.Phase), string(v1.PodPending))
	failed, completed, running := "", "", false
	for i := range p.Status.ContainerStatuses {
		switch s := p.Status.ContainerStatuses[i].State; {
		case s.Waiting != nil && s.Waiting.Reason != "":
			return s.Waiting.Reason
		case s.Running != nil:
			running = true
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			failed = orWord(failed, ending(s.Terminated))
		case s.Terminated != nil:
			completed = orWord(completed, ending(s.Terminated))
		}
	}
	switch {
	case p.Status.Reason != "":
		return p.Status.Reason
	case failed != "":
		return failed
	case running:
		return phase
	}
	return orWord(completed, phase)
}

// initState tells how far the init containers are, or what became of the
// first that has not done its part; "" if all have.
func initState(p *v1.Pod) string {
	done := 0
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		switch t := s.State.Terminated; {
		case t != nil && t.ExitCode == 0, isSidecar(p, s.Name) && s.Started != nil && *s.Started:
			done++
			continue
		case t != nil:
			return "Init:" + ending(t)
		case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
			return "Init:" + s.State.Waiting.Reason
		}
		if !terminalPhase(p.Status.Phase) {
			return fmt.Sprintf("Init:%d/%d", done, len(p.Spec.InitContainers))
		}
	}
	return ""
}

// ending is why a container ended, in a word.
func ending(t *v1.ContainerStateTerminated) string {
	return orWord(t.Reason, "ExitCode:"+strconv.Itoa(int(t.ExitCode)))
}

func terminalPhase(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

func age(p *v1.Pod, now time.Time) string {
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
