package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/cmdline"
)

// completeCommand is the hidden command that the scripts of "agent completion" call.
const completeCommand = "__complete"

// completeTimeout bounds the time that a person waits for names after a tab.
const completeTimeout = 2 * time.Second

func completion(_ context.Context, std stdio, args []string) error {
	names, err := parseNames(flag.NewFlagSet("agent completion", flag.ContinueOnError), std, args)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return fmt.Errorf("which shell? Give one of %s", strings.Join(cmdline.Shells, ", "))
	}
	script, err := cmdline.Script(names[0], os.Args[0])
	if err == nil {
		fmt.Fprint(std.out, script)
	}
	return err
}

// complete prints the words that may stand in the place of the last of words.
func complete(ctx context.Context, std stdio, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	var all []cmdline.Command
	for _, c := range commands() {
		all = append(all, c.Command)
	}
	r := cmdline.Request{
		Commands: all, Words: words, Flags: flagsOf,
		Pods:   func() []string { return runningPods(ctx, words) },
		Values: map[string]string{"o": "wide json yaml name", "output": "wide json yaml name", "network": "cni bridge none"},
	}
	for _, c := range r.Candidates() {
		fmt.Fprintln(std.out, c)
	}
	return nil
}

// flagsOf returns the flags of a command, which does not run.
func flagsOf(name string) (found *flag.FlagSet) {
	if name == "" {
		name = "run"
	}
	for _, c := range commands() {
		if c.Name == name {
			sink := stdio{in: &bytes.Buffer{}, out: io.Discard, err: io.Discard, flags: func(fs *flag.FlagSet) { found = fs }}
			_ = c.run(context.Background(), sink, nil)
		}
	}
	return found
}

// runningPods asks the agent that the words name, or the usual one.
func runningPods(ctx context.Context, words []string) (names []string) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	for i, w := range words {
		name, value, ok := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if !ok && i+1 < len(words) {
			value = words[i+1]
		}
		if strings.HasPrefix(w, "-") && fs.Lookup(name) != nil && value != "" {
			_ = fs.Set(name, value)
		}
	}
	list, err := c.client().Pods(ctx)
	if err != nil {
		return nil
	}
	for i := range list.Items {
		if p := &list.Items[i]; c.namespace == "" || p.Namespace == c.namespace {
			names = append(names, p.Name+"\t"+oneLine(p.Namespace))
		}
	}
	return names
}
