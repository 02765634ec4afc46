package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodewright/nodewright/agent/local"
)

func newLogs(std stdio) *cobra.Command {
	var (
		c     clientFlags
		o     local.LogOptions
		since time.Duration
	)
	cmd := &cobra.Command{
		Use: "logs NAME [CONTAINER]", Short: "Print a container's log",
		Example: "  agent logs web\n  agent logs web side -f --tail 10\n  agent logs web --previous",
		RunE:    func(cmd *cobra.Command, args []string) error { return c.logs(cmd.Context(), std, args, o, since) },
	}
	c.registerPods(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&o.Container, "container", "c", "", "the `container`; by default the first")
	fs.BoolVarP(&o.Follow, "follow", "f", false, "print new lines until the container ends")
	fs.BoolVarP(&o.Previous, "previous", "p", false, "print the log of the previous instance")
	fs.BoolVar(&o.Timestamps, "timestamps", false, "print the time of each line")
	fs.Int64Var(&o.Tail, "tail", -1, "print only the last `lines`; -1 means all")
	fs.DurationVar(&since, "since", 0, "print only lines that are newer than this `duration`")
	completeFlag(cmd, "container", c.from(c.containers))
	cmd.ValidArgsFunction = c.from(func(ctx context.Context, args []string) []string {
		switch len(args) {
		case 0:
			return c.pods(ctx, args)
		case 1:
			return c.containers(ctx, args)
		}
		return nil
	})
	return cmd
}

func (c *clientFlags) logs(ctx context.Context, std stdio, names []string, o local.LogOptions, since time.Duration) error {
	if since < 0 {
		return fmt.Errorf("--since=%v: want a duration above 0", since)
	}
	if o.Tail < -1 {
		return fmt.Errorf("--tail=%d: want a number of lines, or -1 for all", o.Tail)
	}
	if since > 0 {
		o.Since = time.Now().Add(-since)
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
