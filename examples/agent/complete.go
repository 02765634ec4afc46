package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
)

// completeTimeout limits the time for which a user waits for a completion.
const completeTimeout = 2 * time.Second

// completer returns completions: words that may replace toComplete.
type completer = func(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective)

// oneOf returns a completer for a fixed list of words.
func oneOf(all ...string) completer {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// from returns a completer for the words that the function list gets from the agent.
func (c *clientFlags) from(list func(ctx context.Context, args []string) []string) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		return list(ctx, args), cobra.ShellCompDirectiveNoFileComp
	}
}

// pods returns the names of the pods in the namespace of the flag.
func (c *clientFlags) pods(ctx context.Context, _ []string) (names []string) {
	for _, p := range c.list(ctx) {
		names = append(names, cobra.CompletionWithDesc(p.Name, oneLine(p.Namespace)))
	}
	return names
}

// containers returns the names of the containers of the pod in the first argument.
func (c *clientFlags) containers(ctx context.Context, args []string) (names []string) {
	if len(args) == 0 {
		return nil
	}
	pod, err := c.find(ctx, c.client(), args[0])
	if err != nil {
		return nil
	}
	return containersOf(pod)
}

// namespaces returns the namespaces that contain a pod.
func (c *clientFlags) namespaces(ctx context.Context, _ []string) (names []string) {
	all := *c
	all.namespace = ""
	for _, p := range all.list(ctx) {
		names = append(names, p.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// images returns the names of the node's images.
func (c *clientFlags) images(ctx context.Context, _ []string) (names []string) {
	images, err := c.client().Images(ctx)
	if err != nil {
		return nil
	}
	for i := range images.Images {
		names = append(names, oneLine(images.Images[i].Name))
	}
	return names
}

// list returns the pods in the namespace of the flag, or none if no agent answers.
func (c *clientFlags) list(ctx context.Context) []v1.Pod {
	list, err := c.client().Pods(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list.Items, func(p v1.Pod) bool { return c.namespace != "" && p.Namespace != c.namespace })
}

// first returns a completer that completes only the first argument, with next.
func first(next completer) completer {
	return func(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return next(c, args, toComplete)
	}
}

// after returns a completer that completes the first argument with the words in order, and
// further arguments with the completer that next has for the first argument.
func after(next map[string]completer, order ...string) completer {
	return func(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return order, cobra.ShellCompDirectiveNoFileComp
		}
		if f := next[args[0]]; f != nil {
			return f(c, args[1:], toComplete)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag sets the completer for the value of a flag.
func completeFlag(c *cobra.Command, name string, f completer) {
	if err := c.RegisterFlagCompletionFunc(name, f); err != nil {
		panic(err) // the command has no such flag
	}
}
