package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// rateWait is the pause between two readings from which a rate is computed.
const rateWait = 1100 * time.Millisecond

func newTop(std stdio) *cobra.Command {
	var c clientFlags
	cmd := &cobra.Command{
		Use: "top pods|node", Short: "Show the resource usage of pods or the node",
		Example:           "  agent top pods\n  agent top node",
		ValidArgsFunction: first(oneOf("pods", "node")),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.top(cmd.Context(), std, args) },
	}
	c.registerPods(cmd)
	return cmd
}

func (c *clientFlags) top(ctx context.Context, std stdio, names []string) error {
	pods := len(names) == 1 && slices.Contains([]string{"pods", "pod", "po"}, names[0])
	node := len(names) == 1 && slices.Contains([]string{"node", "nodes", "no"}, names[0])
	if !pods && !node {
		return errors.New("top of what? There are: top pods, top node")
	}
	cl := c.client()
	s, err := cl.Summary(ctx, pods)
	if err == nil && withoutRate(s) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rateWait):
		}
		s, err = cl.Summary(ctx, pods)
	}
	if err != nil {
		return err
	}
	if node {
		return writeNodeTop(std.out, &s.Node)
	}
	return writePodsTop(std.out, s.Pods, c.namespace)
}

// withoutRate reports whether the use of processors is not known of something.
func withoutRate(s *statsapi.Summary) bool {
	unknown := func(c *statsapi.CPUStats) bool { return c != nil && c.UsageNanoCores == nil }
	return unknown(s.Node.CPU) || slices.ContainsFunc(s.Pods, func(p statsapi.PodStats) bool { return unknown(p.CPU) })
}

func writePodsTop(out io.Writer, pods []statsapi.PodStats, namespace string) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tCPU(cores)\tMEMORY(bytes)")
	for i := range pods {
		if p := &pods[i]; namespace == "" || p.PodRef.Namespace == namespace {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.PodRef.Namespace, p.PodRef.Name, cores(p.CPU), workingSet(p.Memory))
		}
	}
	return w.Flush()
}

func writeNodeTop(out io.Writer, n *statsapi.NodeStats) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tCPU(cores)\tMEMORY(bytes)\tMEMORY FREE\tDISK FREE\tTHREADS")
	free, disk, threads := "-", "-", "-"
	if n.Memory != nil {
		free = mebibytes(n.Memory.AvailableBytes)
	}
	if n.Fs != nil {
		disk = mebibytes(n.Fs.AvailableBytes)
	}
	if r := n.Rlimit; r != nil && r.NumOfRunningProcesses != nil {
		threads = fmt.Sprint(*r.NumOfRunningProcesses)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n.NodeName, cores(n.CPU), workingSet(n.Memory), free, disk, threads)
	return w.Flush()
}

func cores(c *statsapi.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return "-"
	}
	return fmt.Sprintf("%dm", (*c.UsageNanoCores+999_999)/1_000_000)
}

func workingSet(m *statsapi.MemoryStats) string {
	if m == nil {
		return "-"
	}
	return mebibytes(m.WorkingSetBytes)
}

// mebibytes rounds up, so that nothing that is there shows as none.
func mebibytes(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%dMi", (*n+1<<20-1)>>20)
}
