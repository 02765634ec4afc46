package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/podtext"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent/rootless"
)

// newInfo returns the command that prints the state of the node and the paths of the agent's files.
func newInfo(std stdio) *cobra.Command {
	var c clientFlags
	cmd := &cobra.Command{
		Use: "info", Short: "Print what the agent runs, and where its files and sockets are",
		Example: "  agent info",
		Args:    noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeInfo(cmd.Context(), std.out, c.client(), c.socketPath(), cmd.Root().Name())
		},
	}
	c.register(cmd)
	return cmd
}

// printStart prints the output of "agent info" for an agent that has just started, and how to stop
// the agent. It prints nothing if standard error is not a terminal.
func printStart(ctx context.Context, std stdio, socket, program string) {
	if !isTerminal(std.err) || writeInfo(ctx, std.err, local.NewClient(socket), socket, program) != nil {
		return
	}
	fmt.Fprintf(std.err, "Ctrl-C stops the agent. Its pods keep running until \"%s reset\"\n", program)
}

// writeInfo prints the state of the node, the paths of its files, and useful commands.
func writeInfo(ctx context.Context, out io.Writer, cl *local.Client, socket, program string) error {
	if err := writeNode(ctx, out, cl); err != nil {
		return err
	}
	var values []kubeletconfig.Value
	if err := cl.Get(ctx, configPath, &values); err != nil && !errors.Is(err, local.ErrNotFound) {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, p := range places(values, socket) {
		fmt.Fprintf(w, "%s:\t%s\n", p[0], oneLine(p[1]))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "next: %[1]s get pods; %[1]s why POD; %[1]s ui\n", program)
	return err
}

// places returns pairs of name and path of the agent's files and directories, and the addresses of its
// APIs. values is the agent's configuration.
func places(values []kubeletconfig.Value, socket string) (all [][2]string) {
	set := map[string]string{}
	for _, v := range values {
		if s, ok := v.Value.(string); ok && s != "" {
			set[v.Field] = s
		}
	}
	add := func(name, at string) {
		if at != "" {
			all = append(all, [2]string{name, at})
		}
	}
	add("configuration", set["--config"])
	add("root directory", filepath.Dir(socket))
	add("socket", socket)
	if filepath.Dir(socket) == rootless.RootDir() {
		add("without root", "see docs/guides/rootless.md for what does not work")
	}
	add("manifests", set["staticPodPath"])
	add("manifests from", set["staticPodURL"])
	add("logs of pods", set["podLogsDir"])
	add("cluster", set["--kubeconfig"])
	if api := set["--local-api"]; api != onSocket {
		add("Kubernetes API", api)
	}
	return all
}

// writeNode prints the state of the node in a few lines. It leaves out lines about facts that this
// agent does not know.
func writeNode(ctx context.Context, out io.Writer, cl *local.Client) error {
	why, err := cl.WhyNode(ctx)
	if err != nil {
		return err
	}
	var lines []string
	if n, err := cl.Node(ctx); err == nil {
		state := strings.ReplaceAll(podtext.NodeStatus(n), ",", ", ")
		if n.Spec.Unschedulable {
			state += " (kubectl uncordon " + n.Name + ")"
		}
		lines = append(lines, "node "+n.Name+": "+state+", "+n.Status.NodeInfo.KubeletVersion, machine(n))
	} else {
		lines = append(lines, "node "+why.Name)
	}
	if line := podsLine(ctx, cl); line != "" {
		lines = append(lines, line)
	}
	for _, f := range [][2]string{{"runtime", why.Runtime}, {"network", why.Network}} {
		if f[1] != "" {
			lines = append(lines, f[0]+": "+f[1])
		}
	}
	for _, l := range lines {
		fmt.Fprintln(out, oneLine(l))
	}
	return nil
}

// machine returns the CPUs, memory, operating system and addresses of a node in one line.
func machine(n *v1.Node) string {
	capacity, info := n.Status.Capacity, &n.Status.NodeInfo
	parts := []string{counted(int(capacity.Cpu().Value()), "CPU"), humanBytes(capacity.Memory().Value()) + " of memory"}
	for _, s := range []string{info.OSImage, "kernel " + info.KernelVersion, info.Architecture} {
		if s != "" && s != "kernel " {
			parts = append(parts, s)
		}
	}
	for _, a := range n.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			parts = append(parts, a.Address)
		}
	}
	return strings.Join(parts, ", ")
}

// podsLine returns a line with the number of pods that are in their desired state, or "" if it is not
// known.
func podsLine(ctx context.Context, cl *local.Client) string {
	all, err := cl.Whys(ctx)
	if err != nil {
		return ""
	}
	good := 0
	for i := range all {
		if all[i].Good {
			good++
		}
	}
	return fmt.Sprintf("pods: %d of %d are in their desired state", good, len(all))
}
