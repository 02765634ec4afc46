package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodewright/nodewright/internal/podtext"
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
	return podtext.Describe(std.out, pod, events.Items, time.Now())
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
