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

// problem is shorter to read in signatures.
type problem = local.Problem

func logs(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent logs", flag.ContinueOnError)
	var (
		c clientFlags
		o local.LogOptions
	)
	c.register(fs)
	fs.StringVar(&o.Container, "c", "", "the `container`; else the first")
	fs.BoolVar(&o.Follow, "f", false, "go on until the container ends")
	fs.BoolVar(&o.Previous, "p", false, "of the instance before this one")
	fs.BoolVar(&o.Timestamps, "timestamps", false, "put each line's time before it")
	fs.Int64Var(&o.Tail, "tail", -1, "begin with the last `lines`; -1 means all")
	since := fs.Duration("since", 0, "only what is younger than this `duration`")
	names, _, err := parse(fs, std, args)
	if err != nil {
		return err
	}
	if *since < 0 {
		return fmt.Errorf("--since %v: want a duration above 0", *since)
	}
	if *since > 0 {
		o.Since = time.Now().Add(-*since)
	}
	switch len(names) {
	case 1:
	case 2:
		o.Container = names[1]
	default:
		return errPodName
	}
	cl := c.client()
	pod, err := c.find(ctx, cl, names[0])
	if err != nil {
		return err
	}
	body, err := cl.Log(ctx, pod.Namespace, pod.Name, o)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if _, err := io.Copy(std.out, body); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
