package main

import (
	"context"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/nodewright/nodewright/agent/local"
)

func newAttach(std stdio) *cobra.Command {
	var (
		c          clientFlags
		req        local.AttachRequest
		tty, quiet bool
	)
	cmd := &cobra.Command{
		Use: "attach NAME [flags]", Short: "Join the terminal to the first process of a container",
		Example: "  agent attach web\n  agent attach -it shell -c c",
		Args:    onePod, ValidArgsFunction: first(c.from(c.pods)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.attach(cmd.Context(), std, args[0], req, tty, quiet)
		},
	}
	c.registerPods(cmd)
	cmd.Flags().StringVarP(&req.Container, "container", "c", "", "the `container`; by default the first")
	cmd.Flags().BoolVarP(&req.Stdin, "stdin", "i", false, "pass standard input to the process; needs a container with stdin: true")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "standard input is a terminal; needs a container with tty: true")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only what the process prints")
	completeFlag(cmd, "container", c.from(c.containers))
	return cmd
}

// onePod returns an error unless there is exactly one argument, the name of a pod.
func onePod(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errPodName
	}
	return nil
}

func (c *clientFlags) attach(ctx context.Context, std stdio, name string, req local.AttachRequest, tty, quiet bool) error {
	say := func(text string) {
		if !quiet {
			fmt.Fprintln(std.err, text)
		}
	}
	cl := c.client()
	pod, err := c.findOrExplain(ctx, std, cl, name)
	if err != nil {
		return err
	}
	a, err := cl.Attach(ctx, pod.Namespace, pod.Name, req)
	if err != nil {
		return err
	}
	if tty && !isTerminal(std.in) {
		say("standard input is not a terminal: continuing without -t")
		tty = false
	}
	if tty && !a.TTY {
		say("the container has no terminal (tty: true): continuing without -t")
		tty = false
	}
	if req.Stdin && !a.Stdin {
		say("the container has no standard input (stdin: true): continuing without -i")
	}
	if tty {
		say("no prompt? Press enter")
	}
	return stream(ctx, a.URL, std, streams{what: "attach", stdin: a.Stdin, tty: a.TTY, raw: tty && a.Stdin})
}

var portPair = regexp.MustCompile(`^([0-9]{0,5}:)?[0-9]{1,5}$`)

func newPortForward(std stdio) *cobra.Command {
	var (
		c         clientFlags
		addresses []string
	)
	cmd := &cobra.Command{
		Use: "port-forward NAME [LOCAL:]PORT... [flags]", Short: "Forward ports of this machine to a pod, until Ctrl-C",
		Example: "  agent port-forward web 8080\n  agent port-forward web 8888:80 9090\n  agent port-forward web :80\n  agent port-forward --address 0.0.0.0 web 8888:80",
		Args: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return errPodName
			case 1:
				return fmt.Errorf("which ports of %s? Give PORT or LOCAL:PORT", args[0])
			}
			for _, p := range args[1:] {
				if !portPair.MatchString(p) {
					return fmt.Errorf("%q: want PORT, LOCAL:PORT, or :PORT for any local port", p)
				}
			}
			return nil
		},
		ValidArgsFunction: first(c.from(c.pods)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.portForward(cmd.Context(), std, args[0], args[1:], addresses)
		},
	}
	c.registerPods(cmd)
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"localhost"}, "the `addresses` to listen on")
	return cmd
}

func (c *clientFlags) portForward(ctx context.Context, std stdio, name string, ports, addresses []string) error {
	pod, err := c.findOrExplain(ctx, std, c.client(), name)
	if err != nil {
		return err
	}
	dialer := portDialer{ctx, c.client(), pod.Namespace, pod.Name}
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, addresses, ports, make(chan struct{}), std.out, std.err)
	if err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	if err := f.ForwardPorts(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	return nil
}

// portDialer opens a connection for all forwarded ports of a pod.
type portDialer struct {
	ctx             context.Context //nolint:containedctx // of the command: the interface has no context
	agent           *local.Client
	namespace, name string
}

func (d portDialer) Dial(protocols ...string) (httpstream.Connection, string, error) {
	u, err := d.agent.PortForward(d.ctx, d.namespace, d.name)
	if err != nil {
		return nil, "", err
	}
	if len(protocols) == 0 {
		return nil, "", io.ErrUnexpectedEOF
	}
	conn, err := dial(d.ctx, u, protocols[0])
	return conn, protocols[0], err
}
