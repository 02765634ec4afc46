package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/podtext"
)

func newGet(std stdio) *cobra.Command {
	var (
		c      clientFlags
		output string
		watch  bool
	)
	cmd := &cobra.Command{
		Use: "get pods|events [NAME...]", Short: "List pods, or events of pods and the node", SuggestFor: []string{"ps", "ls", "list"},
		Example: "  agent get pods -o wide\n  agent get pods web -w\n  agent get events web",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.get(cmd.Context(), std, args, output, watch)
		},
	}
	c.registerPods(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `format`: wide, json, yaml or name")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print the pods that change, until Ctrl-C")
	completeFlag(cmd, "output", oneOf("wide", "json", "yaml", "name"))
	cmd.ValidArgsFunction = after(map[string]completer{"pods": c.from(c.pods), "events": c.from(c.pods)}, "pods", "events")
	return cmd
}

func (c *clientFlags) get(ctx context.Context, std stdio, names []string, output string, watch bool) error {
	if len(names) == 0 {
		return errors.New("get what? There are: get pods [NAME], get events [POD]")
	}
	kind, names := names[0], names[1:]
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, output) {
		return fmt.Errorf("-o %q: want wide, json, yaml or name", output)
	}
	if watch && output != "" && output != "wide" {
		return fmt.Errorf("-w with -o %q: want wide, or no -o", output)
	}
	switch kind {
	case "pods", "pod", "po":
		if watch {
			return c.watchPods(ctx, std, names, output == "wide")
		}
		return c.getPods(ctx, std, names, output)
	case "events", "event", "ev":
		if watch {
			return errors.New("-w: want get pods")
		}
		if output == "wide" || output == "name" {
			return fmt.Errorf("-o %q: want json or yaml for events", output)
		}
		return c.getEvents(ctx, std, names, output)
	}
	return fmt.Errorf("get %q? There are: get pods [NAME], get events [POD]", kind)
}

func (c *clientFlags) getPods(ctx context.Context, std stdio, names []string, output string) error {
	cl := c.client()
	list, err := c.selected(ctx, std, cl, names)
	if err != nil {
		return err
	}
	switch output {
	case "json", "yaml":
		var v any = list
		if len(names) == 1 && len(list.Items) == 1 {
			v = &list.Items[0]
		}
		return printObjects(std.out, v, output)
	case "name":
		for i := range list.Items {
			fmt.Fprintln(std.out, "pod/"+list.Items[i].Name)
		}
	default:
		if len(list.Items) > 0 {
			err = podtext.WriteTable(std.out, list.Items, output == "wide", time.Now())
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

// watchPods follows all pods, or those that had these names at the start.
func (c *clientFlags) watchPods(ctx context.Context, std stdio, names []string, wide bool) error {
	cl := c.client()
	chosen, err := c.selected(ctx, std, cl, names)
	if err != nil {
		return err
	}
	return podtext.Watch(ctx, std.out, wide, func(ctx context.Context) ([]v1.Pod, error) {
		all, err := c.selected(ctx, std, cl, nil)
		if err == nil && len(names) > 0 {
			all.Items = slices.DeleteFunc(all.Items, func(p v1.Pod) bool {
				return !slices.ContainsFunc(chosen.Items, func(q v1.Pod) bool { return p.Namespace == q.Namespace && p.Name == q.Name })
			})
		}
		if err != nil {
			return nil, err
		}
		return all.Items, nil
	})
}

// getEvents lists the events of all pods and of the node, or of the pods of those names. A pod
// that is gone is known by its events for an hour.
func (c *clientFlags) getEvents(ctx context.Context, std stdio, names []string, output string) error {
	all, err := c.client().AllEvents(ctx)
	if err != nil {
		return err
	}
	of := func(e *v1.Event) bool {
		o := &e.InvolvedObject
		if c.namespace != "" && o.Namespace != c.namespace {
			return false
		}
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return isAbout(e, name) })
	}
	all.Items = slices.DeleteFunc(all.Items, func(e v1.Event) bool { return !of(&e) })
	if len(names) > 0 && len(all.Items) == 0 {
		// A pod that is there may have none; else it is said what there is.
		if _, err := c.selected(ctx, std, c.client(), names); err != nil {
			return err
		}
	}
	if output != "" {
		return printObjects(std.out, all, output)
	}
	if len(all.Items) == 0 {
		return errors.New("no events")
	}
	return podtext.WriteEvents(std.out, all.Items, time.Now())
}

// isAbout reports whether a person means the object of an event by a name: its own, that with the
// namespace before it, or that of a pod in its manifest, without the suffix of the node.
func isAbout(e *v1.Event, name string) bool {
	o := &e.InvolvedObject
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		if namespace != o.Namespace {
			return false
		}
		name = rest
	}
	return o.Name == name || o.Name == name+"-"+strings.ToLower(e.Source.Host)
}

// selected returns the pods with the given names, or all pods of the namespace.
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

func printObjects(w io.Writer, v any, format string) error {
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

var oneLine = podtext.OneLine

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
