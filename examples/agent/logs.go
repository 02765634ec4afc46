package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/nodewright/nodewright/agent/local"
)

func logs(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent logs", flag.ContinueOnError)
	var (
		c clientFlags
		o local.LogOptions
	)
	c.register(fs)
	fs.StringVar(&o.Container, "c", "", "the `container`; by default the first")
	fs.BoolVar(&o.Follow, "f", false, "print new lines until the container ends")
	fs.BoolVar(&o.Previous, "p", false, "print the log of the previous instance")
	fs.BoolVar(&o.Timestamps, "timestamps", false, "print the time of each line")
	fs.Int64Var(&o.Tail, "tail", -1, "print only the last `lines`; -1 means all")
	since := fs.Duration("since", 0, "print only lines that are newer than this `duration`")
	also(fs, "c", "container")
	also(fs, "f", "follow")
	also(fs, "p", "previous")
	names, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	if *since < 0 {
		return fmt.Errorf("--since=%v: want a duration above 0", *since)
	}
	if o.Tail < -1 {
		return fmt.Errorf("--tail=%d: want a number of lines, or -1 for all", o.Tail)
	}
	if *since > 0 {
		o.Since = time.Now().Add(-*since)
	}
	switch len(names) {
	case 1:
	case 2:
		if o.Container != "" && o.Container != names[1] {
			return fmt.Errorf("-c %s with %q: which container?", o.Container, names[1])
		}
		o.Container = names[1]
	default:
		return errPodName
	}
	cl := c.client()
	pod, err := c.findOrExplain(ctx, std, cl, names[0])
	if err != nil {
		return err
	}
	body, err := cl.Log(ctx, pod.Namespace, pod.Name, o)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	switch _, err := io.Copy(std.out, body); {
	case err == nil, errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the log broke off: %w", err)
	default:
		return err
	}
}
