package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/podtext"
)

// rateWait is the pause between two readings from which the agent computes a CPU rate.
const rateWait = 1100 * time.Millisecond

// topFlags are the flags of "agent top".
type topFlags struct {
	clientFlags
	containers, noHeaders bool
	sortBy                string
}

func newTop(std stdio) *cobra.Command {
	var t topFlags
	cmd := &cobra.Command{
		Use: "top pods|node [NAME]", Short: "Show the resource usage of pods or the node",
		Example:           "  agent top pods --sort-by memory\n  agent top pods web --containers\n  agent top node",
		ValidArgsFunction: after(map[string]completer{"pods": first(t.from(t.pods))}, "pods", "node"),
		RunE:              func(cmd *cobra.Command, args []string) error { return t.top(cmd.Context(), std, args) },
	}
	t.registerPods(cmd)
	cmd.Flags().BoolVar(&t.containers, "containers", false, "print the usage of each container")
	cmd.Flags().BoolVar(&t.noHeaders, "no-headers", false, "print no column names")
	cmd.Flags().StringVar(&t.sortBy, "sort-by", "", "sort by `resource`, the largest first: cpu or memory")
	completeFlag(cmd, "sort-by", oneOf("cpu", "memory"))
	return cmd
}

func (t *topFlags) top(ctx context.Context, std stdio, args []string) error {
	kind, names := "", []string(nil)
	if len(args) > 0 {
		var err error
		if kind, names, err = typeAndNames(args); err != nil {
			return err
		}
	}
	pods := slices.Contains([]string{"pods", "pod", "po"}, kind)
	node := slices.Contains([]string{"node", "nodes", "no"}, kind)
	if !pods && !node || len(names) > 1 {
		return errors.New("top of what? There are: top pods [NAME], top node")
	}
	if !slices.Contains([]string{"", "cpu", "memory"}, t.sortBy) {
		return fmt.Errorf("--sort-by=%q: want cpu or memory", t.sortBy)
	}
	cl := t.client()
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
		n, err := cl.Node(ctx)
		if err != nil {
			n = &v1.Node{} // print no percentages
		}
		return t.writeNode(std.out, &s.Node, n.Status.Allocatable)
	}
	if t.namespace != "" {
		s.Pods = slices.DeleteFunc(s.Pods, func(p statsapi.PodStats) bool { return p.PodRef.Namespace != t.namespace })
	}
	if len(names) == 1 {
		pod, err := t.findOrExplain(ctx, std, cl, names[0])
		if err != nil {
			return err
		}
		s.Pods = slices.DeleteFunc(s.Pods, func(p statsapi.PodStats) bool {
			return p.PodRef.Namespace != pod.Namespace || p.PodRef.Name != pod.Name
		})
	}
	return t.writePods(std.out, s.Pods)
}

// withoutRate reports whether the CPU rate of the node or of a pod in s is missing.
func withoutRate(s *statsapi.Summary) bool {
	unknown := func(c *statsapi.CPUStats) bool { return c != nil && c.UsageNanoCores == nil }
	return unknown(s.Node.CPU) || slices.ContainsFunc(s.Pods, func(p statsapi.PodStats) bool { return unknown(p.CPU) })
}

// usage is the CPU and memory usage of a pod or a container. names are the first cells of its row.
type usage struct {
	names  []string
	cpu    *statsapi.CPUStats
	memory *statsapi.MemoryStats
}

func (t *topFlags) writePods(out io.Writer, pods []statsapi.PodStats) error {
	head, all := []string{"NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"}, []usage(nil)
	if t.containers {
		head = []string{"NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)"}
	}
	for i := range pods {
		p := &pods[i]
		if !t.containers {
			all = append(all, usage{[]string{p.PodRef.Namespace, p.PodRef.Name}, p.CPU, p.Memory})
			continue
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			all = append(all, usage{[]string{p.PodRef.Namespace, p.PodRef.Name, c.Name}, c.CPU, c.Memory})
		}
	}
	slices.SortStableFunc(all, func(a, b usage) int {
		switch t.sortBy {
		case "cpu":
			return cmp.Compare(amount(b.cpu, func(c *statsapi.CPUStats) *uint64 { return c.UsageNanoCores }), amount(a.cpu, func(c *statsapi.CPUStats) *uint64 { return c.UsageNanoCores }))
		case "memory":
			return cmp.Compare(amount(b.memory, func(m *statsapi.MemoryStats) *uint64 { return m.WorkingSetBytes }), amount(a.memory, func(m *statsapi.MemoryStats) *uint64 { return m.WorkingSetBytes }))
		}
		return 0
	})
	var rows [][]string
	for _, u := range all {
		rows = append(rows, append(u.names, cores(u.cpu), workingSet(u.memory)))
	}
	return t.write(out, head, rows...)
}

// amount returns a value, or 0 if the value is not known.
func amount[T any](of *T, get func(*T) *uint64) uint64 {
	if of == nil || get(of) == nil {
		return 0
	}
	return *get(of)
}

func (t *topFlags) write(out io.Writer, head []string, rows ...[]string) error {
	if !t.noHeaders {
		rows = append([][]string{head}, rows...)
	}
	return (&podtext.Lines{W: out}).Write(rows...)
}

func (t *topFlags) writeNode(out io.Writer, n *statsapi.NodeStats, allocatable v1.ResourceList) error {
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
	share := func(used uint64, of int64) string {
		if used == 0 || of == 0 {
			return "-"
		}
		return fmt.Sprintf("%d%%", used*100/uint64(of))
	}
	cpu := amount(n.CPU, func(c *statsapi.CPUStats) *uint64 { return c.UsageNanoCores }) / 1_000_000
	memory := amount(n.Memory, func(m *statsapi.MemoryStats) *uint64 { return m.WorkingSetBytes })
	return t.write(out, []string{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)", "MEMORY FREE", "DISK FREE", "THREADS"},
		[]string{n.NodeName, cores(n.CPU), share(cpu, allocatable.Cpu().MilliValue()), workingSet(n.Memory), share(memory, allocatable.Memory().Value()), free, disk, threads})
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

// mebibytes formats a number of bytes in Mi, rounded up, so that a small number is not shown as 0.
func mebibytes(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%dMi", (*n+1<<20-1)>>20)
}
