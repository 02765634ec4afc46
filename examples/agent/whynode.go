package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodewright/nodewright/agent/local"
)

// whyNode prints the state of the node and, if parts is true, the agent's parts.
func whyNode(ctx context.Context, std stdio, cl *local.Client, parts bool) error {
	if err := writeNode(ctx, std.out, cl); err != nil {
		return err
	}
	w, err := cl.WhyNode(ctx)
	if err != nil {
		return err
	}
	if !parts {
		w.Parts = nil
	}
	return writeNodeWhy(std.out, w, time.Now())
}

// writeNodeWhy prints advice, the node's conditions, the eviction signals, the agent's work and last
// decisions, and the node's events.
func writeNodeWhy(out io.Writer, n *local.NodeWhy, now time.Time) error {
	for _, s := range n.Advice {
		fmt.Fprintln(out, "advice: "+oneLine(s))
	}
	if n.ShuttingDown {
		fmt.Fprintln(out, "the machine is shutting down: no pod may start")
	}
	ago := func(t time.Time) string { return duration.HumanDuration(now.Sub(t)) }
	for _, c := range n.Conditions {
		fmt.Fprintf(out, "%s: %s", c.Type, c.Status)
		if !c.LastTransitionTime.IsZero() {
			fmt.Fprintf(out, " since %s", ago(c.LastTransitionTime.Time))
		}
		if c.Status == v1.ConditionTrue {
			fmt.Fprintf(out, " (%s)", oneLine(c.Message))
		}
		fmt.Fprintln(out)
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	if len(n.Figures) > 0 {
		fmt.Fprintln(w, "\nSIGNAL\tAVAILABLE\tOF\tTHRESHOLD\tSTATE")
	}
	for _, f := range n.Figures {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Signal, orDash(f.Available), orDash(f.Capacity), thresholdText(&f), figureState(&f, ago))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(n.Work) > 0 {
		fmt.Fprintln(w, "\nWORK\tRUNNING\tAT MOST\tWAITING")
	}
	for _, k := range n.Work {
		limit := "-"
		if k.Limit > 0 {
			limit = strconv.Itoa(k.Limit)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\n", k.Kind, k.Running, limit, k.Waiting)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(n.Decisions) > 0 {
		fmt.Fprintln(out, "\nlast decisions:")
	}
	for _, d := range n.Decisions {
		fmt.Fprintf(out, "%s ago, %s: %s available, threshold %s, %s to free (%s): %s", ago(d.Time), d.What,
			d.Available, d.Threshold, d.Need, d.Cause, oneLine(d.Outcome))
		if d.Repeats > 0 {
			fmt.Fprintf(out, ", and %d times the same", d.Repeats)
		}
		if d.Error != "" {
			fmt.Fprintf(out, "; %s", oneLine(d.Error))
		}
		fmt.Fprintln(out)
		for _, l := range d.Lines {
			fmt.Fprintln(out, "  "+oneLine(l))
		}
	}
	if len(n.Events) > 0 {
		fmt.Fprintln(out, "\nevents:")
	}
	for i := range n.Events {
		e := &n.Events[i]
		fmt.Fprintf(out, "%s ago (%d times) %s %s: %s\n", ago(e.LastTimestamp.Time), e.Count, e.Type, e.Reason, oneLine(e.Message))
	}
	if len(n.Parts) > 0 {
		fmt.Fprintln(out, "\nparts, in the order in which they are called:")
	}
	for _, p := range n.Parts {
		fmt.Fprintf(out, "%s: %s\n", p.Name, strings.Join(p.Hooks, ", "))
	}
	return nil
}

func thresholdText(f *local.NodeFigure) string {
	text := f.Threshold
	if f.Soft {
		text += " for " + f.Grace
	}
	if f.MinReclaim != "" {
		text += ", then +" + f.MinReclaim
	}
	return text
}

func figureState(f *local.NodeFigure, ago func(time.Time) string) string {
	state := "enough"
	switch {
	case f.Acting:
		state = "low, and the agent is reclaiming, since " + ago(f.Since)
	case f.Met:
		state = "low since " + ago(f.Since)
	case f.Available == "":
		state = "not known"
	}
	if f.Stale != "" {
		state += " (not read for " + f.Stale + ")"
	}
	return state
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
