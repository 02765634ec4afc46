package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podmeta"
)

func newDebug(std stdio) *cobra.Command {
	var (
		c     clientFlags
		req   local.DebugRequest
		quiet bool
	)
	cmd := &cobra.Command{
		Use: "debug NAME --image IMAGE [flags] [-- COMMAND...]", Short: "Put a container with tools into a running pod",
		Long: `Put an ephemeral container into a running pod. The container shares the network of the pod. With --target it sees the
processes of another container, whose files are below /proc/1/root. With -i the command attaches the terminal to the
container. In a static pod, the container ends at the latest when the agent ends.`,
		Example: "  agent debug web -it --image docker.io/library/busybox:1.36 --target server\n  agent debug web -it --image busybox:1.36 -- sh\n  agent debug web --image localhost/tools:1 -c tools -- sleep 3600",
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			switch {
			case dash != 1:
				return errPodName
			case req.Image == "":
				return errors.New("which image? Give one with the tools with --image")
			}
			req.Command = args[1:]
			req.Name = cmp.Or(req.Name, "debugger-"+strconv.FormatUint(rand.Uint64N(36*36*36*36*36), 36))
			return c.debug(cmd.Context(), std, args[0], req, quiet)
		},
	}
	c.registerPods(cmd)
	cmd.Flags().StringVar(&req.Image, "image", "", "the `image` of the container")
	cmd.Flags().StringVar(&req.Target, "target", "", "the `container` whose processes the new container sees; default none")
	cmd.Flags().StringVarP(&req.Name, "container", "c", "", "the `name` of the container; default debugger- with a random suffix")
	cmd.Flags().BoolVarP(&req.Stdin, "stdin", "i", false, "attach to the container: pass standard input to it, and print its output")
	cmd.Flags().BoolVarP(&req.TTY, "tty", "t", false, "allocate a terminal; standard input must be one")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only the output of the container")
	completeFlag(cmd, "target", c.from(c.containers))
	completeFlag(cmd, "image", c.from(c.images))
	cmd.ValidArgsFunction = first(c.from(c.pods))
	return cmd
}

// debug adds an ephemeral container to a pod. With req.Stdin it attaches to the container when the
// container runs.
func (c *clientFlags) debug(ctx context.Context, std stdio, name string, req local.DebugRequest, quiet bool) error {
	if req.TTY && !isTerminal(std.in) {
		fmt.Fprintln(std.err, "standard input is not a terminal: continuing without -t")
		req.TTY = false
	}
	cl := c.client()
	pod, err := c.findOrExplain(ctx, std, cl, name)
	if err != nil {
		return err
	}
	if podmeta.IsTerminal(pod.Status.Phase) {
		return errEnded(pod)
	}
	if err := addContainer(ctx, cl, pod, req); err != nil {
		return err
	}
	if !req.Stdin {
		fmt.Fprintln(std.out, req.Name)
		return nil
	}
	if !quiet {
		fmt.Fprintf(std.err, "container %s is added to pod %s/%s\n", req.Name, pod.Namespace, pod.Name)
	}
	end, err := awaitContainer(ctx, std, cl, pod, req.Name)
	if err != nil {
		return err
	}
	if end != nil { // the container ended before debug could attach
		log := logsFlags{LogOptions: local.LogOptions{Tail: -1}}
		if err := log.copyLog(ctx, cl, logSource{pod.Namespace, pod.Name, req.Name}, &lineWriter{w: std.out}); err != nil || end.ExitCode == 0 {
			return err
		}
		return exitError(end.ExitCode)
	}
	c.namespace = pod.Namespace
	return c.attach(ctx, std, pod.Name, local.AttachRequest{Container: req.Name, Stdin: true}, req.TTY, quiet)
}

func errEnded(pod *v1.Pod) error { return fmt.Errorf("pod %s/%s has ended", pod.Namespace, pod.Name) }

// addContainer adds an ephemeral container to a pod. For a static pod it uses the agent's own API, for
// another pod the agent's Kubernetes API.
func addContainer(ctx context.Context, cl *local.Client, pod *v1.Pod, req local.DebugRequest) error {
	if podmeta.IsStatic(pod) {
		return cl.Debug(ctx, pod.Namespace, pod.Name, req)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ephemeralContainers": []v1.EphemeralContainer{req.Container()}}})
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + url.PathEscape(pod.Namespace) + "/pods/" + url.PathEscape(pod.Name) + "/ephemeralcontainers"
	err = cl.Patch(ctx, path, string(types.StrategicMergePatchType), patch)
	if errors.Is(err, local.ErrNotFound) {
		return fmt.Errorf("pod %s/%s belongs to a cluster; add the container with kubectl debug", pod.Namespace, pod.Name)
	}
	return err
}

// debugInterval is the time between two requests for the state of a starting container.
const debugInterval = 200 * time.Millisecond

// awaitContainer waits until an ephemeral container is running or has terminated. end is nil if the
// container is running. While it waits, it prints why the container does not start.
func awaitContainer(ctx context.Context, std stdio, cl *local.Client, pod *v1.Pod, name string) (end *v1.ContainerStateTerminated, err error) {
	tick := time.NewTicker(debugInterval)
	defer tick.Stop()
	for said := ""; ; {
		now, err := cl.Pod(ctx, pod.Namespace, pod.Name)
		if err != nil {
			return nil, err
		}
		if now.UID != pod.UID || podmeta.IsTerminal(now.Status.Phase) {
			return nil, errEnded(pod)
		}
		all := now.Status.EphemeralContainerStatuses
		if i := slices.IndexFunc(all, func(s v1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
			switch s := &all[i].State; {
			case s.Running != nil:
				return nil, nil //nolint:nilnil // it runs
			case s.Terminated != nil:
				return s.Terminated, nil
			case s.Waiting != nil && s.Waiting.Message != "" && s.Waiting.Message != said:
				said = s.Waiting.Message
				fmt.Fprintln(std.err, oneLine(s.Waiting.Reason+": "+said))
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
