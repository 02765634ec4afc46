package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	w, err := cl.Why(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	return podtext.Describe(std.out, pod, w.Details(time.Now()), events.Items, time.Now())
}

func newWhy(std stdio) *cobra.Command {
	var (
		c     clientFlags
		past  pastFlags
		parts bool
	)
	cmd := &cobra.Command{
		Use: "why NAME|node", Short: "Explain why a pod waits, now or at an earlier time, or how close the node is to evictions", SuggestFor: []string{"status", "explain"},
		Example: "  agent why web\n  agent why web --at 03:12\n  agent why web --since 12h\n  agent why node\n  agent why node --at '2026-11-28 03:12:07' -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if past.given() {
				return c.past(std, args, &past)
			}
			return c.why(cmd.Context(), std, args, parts)
		},
	}
	c.registerPods(cmd)
	past.register(cmd)
	cmd.Flags().BoolVar(&parts, "parts", false, "with node: also list the parts of the agent and their hooks")
	cmd.ValidArgsFunction = first(c.from(func(ctx context.Context, args []string) []string {
		return append([]string{"node"}, c.pods(ctx, args)...)
	}))
	return cmd
}

func (c *clientFlags) why(ctx context.Context, std stdio, names []string, parts bool) error {
	if len(names) != 1 {
		return errPodName
	}
	cl := c.client()
	if names[0] == "node" {
		return whyNode(ctx, std, cl, parts)
	}
	pod, err := c.findOrExplain(ctx, std, cl, names[0])
	if err != nil {
		return err
	}
	w, err := cl.Why(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	for _, line := range w.Lines(time.Now()) {
		fmt.Fprintln(std.out, oneLineIndented(line))
	}
	return nil
}

// oneLineIndented returns the result of oneLine with the indentation of the line.
func oneLineIndented(line string) string {
	text := strings.TrimLeft(line, " ")
	return line[:len(line)-len(text)] + oneLine(text)
}
