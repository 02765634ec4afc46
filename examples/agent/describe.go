package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodewright/nodewright/internal/podtext"
)

func newDescribe(std stdio) *cobra.Command {
	var c clientFlags
	cmd := &cobra.Command{
		Use: "describe pod NAME", Short: "Show everything about one pod",
		Example: "  agent describe pod web",
		RunE:    func(cmd *cobra.Command, args []string) error { return c.describe(cmd.Context(), std, args) },
	}
	c.registerPods(cmd)
	cmd.ValidArgsFunction = after(map[string]completer{"pod": first(c.from(c.pods))}, "pod")
	return cmd
}

func (c *clientFlags) describe(ctx context.Context, std stdio, names []string) error {
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
	return podtext.Describe(std.out, pod, events.Items, time.Now())
}

func newWhy(std stdio) *cobra.Command {
	var c clientFlags
	cmd := &cobra.Command{
		Use: "why NAME|node", Short: "Say why a pod waits, or how close the node is to evictions", SuggestFor: []string{"status", "explain"},
		Example: "  agent why web\n  agent why node",
		RunE:    func(cmd *cobra.Command, args []string) error { return c.why(cmd.Context(), std, args) },
	}
	c.registerPods(cmd)
	cmd.ValidArgsFunction = first(c.from(func(ctx context.Context, args []string) []string {
		return append([]string{"node"}, c.pods(ctx, args)...)
	}))
	return cmd
}

func (c *clientFlags) why(ctx context.Context, std stdio, names []string) error {
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
