package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row has the figures of one node with one number of pods.
type row struct {
	node                                        string
	pods                                        int
	half, all, perPod, atRest, restart, removed time.Duration
	memory, monitors                            float64 // MiB of the whole node; KiB of one pod's monitors or shims
}

func (r row) String() string {
	return fmt.Sprintf("%-10s %5d pods: half %.2f s, all %.2f s, %d ms of CPU a pod; at rest %.2f s of CPU in %v, %.0f MiB, %.0f KiB a pod outside of the agent; answers %.2f s after a kill; removed in %.2f s",
		r.node, r.pods, r.half.Seconds(), r.all.Seconds(), r.perPod.Milliseconds(), r.atRest.Seconds(), rest, r.memory, r.monitors, r.restart.Seconds(), r.removed.Seconds())
}

func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, int(q*float64(len(times))))]
}

// tick is the unit of CPU times in /proc/PID/stat (proc_pid_stat(5)). It is 1/100 s on all
// architectures that Go supports.
const tick = 10 * time.Millisecond

// cpu returns the CPU time of all processes of the node, except those in containers. It includes
// the time of exited children that their parent has waited for.
func (n *node) cpu() (total time.Duration) {
	n.processes(func(pid string, container bool) {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if container || err != nil || !ok || len(fields) < 15 {
			return
		}
		for _, f := range fields[11:15] {
			ticks, _ := strconv.Atoi(f)
			total += time.Duration(ticks) * tick
		}
	})
	return total
}

// memory returns the proportional set size of all processes of the node, except those in
// containers, in MiB. perPod is the average size of one pod's monitors or shims, in KiB.
func (n *node) memory() (all, perPod float64) {
	main := strconv.Itoa(n.cmd.Process.Pid)
	pods := n.containers()
	n.processes(func(pid string, container bool) {
		if container {
			return
		}
		text, _ := os.ReadFile(filepath.Join("/proc", pid, "smaps_rollup"))
		_, rest, _ := strings.Cut(string(text), "\nPss:")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return
		}
		kib, _ := strconv.ParseFloat(fields[0], 64)
		all += kib / 1024
		if exe, _ := os.Readlink(filepath.Join("/proc", pid, "exe")); pid != main && !strings.HasSuffix(exe, "/containerd") {
			perPod += kib / float64(max(pods, 1))
		}
	})
	return all, perPod
}

// containers returns the number of running containers.
func (n *node) containers() (count int) {
	n.processes(func(_ string, container bool) {
		if container {
			count++
		}
	})
	return count
}

var columns = []struct {
	name string
	of   func(row) float64
}{
	{"half running, s", func(r row) float64 { return r.half.Seconds() }},
	{"all running, s", func(r row) float64 { return r.all.Seconds() }},
	{"CPU a pod, ms", func(r row) float64 { return float64(r.perPod.Microseconds()) / 1000 }},
	{"CPU in 10 s of rest, s", func(r row) float64 { return r.atRest.Seconds() }},
	{"memory (PSS), MiB", func(r row) float64 { return r.memory }},
	{"monitors or shims, KiB a pod", func(r row) float64 { return r.monitors }},
	{"answers after kill -9, s", func(r row) float64 { return r.restart.Seconds() }},
	{"removed, s", func(r row) float64 { return r.removed.Seconds() }},
}

// table returns a Markdown table of rows. Each cell has the smallest and the largest
// figure of all rounds.
func table(where string, rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; smallest and largest figure of all rounds\n\n| node | pods |", where)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, g := range groups(rows) {
		fmt.Fprintf(&b, "| %s | %d |", g[0].node, g[0].pods)
		for _, c := range columns {
			low, high := c.of(g[0]), c.of(g[0])
			for _, r := range g {
				low, high = min(low, c.of(r)), max(high, c.of(r))
			}
			fmt.Fprintf(&b, " %s - %s |", short(low), short(high))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func short(f float64) string {
	if f >= 100 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

// groups returns the rows of one node and one number of pods together, in the order of the first
// row of each group.
func groups(rows []row) (out [][]row) {
	for _, r := range rows {
		i := slices.IndexFunc(out, func(g []row) bool { return g[0].node == r.node && g[0].pods == r.pods })
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], r)
	}
	return out
}

// plot returns an SVG bar chart of the table. Each bar is the median of a group of rows. Each
// column of the table has its own scale: the largest value of any row has the full width.
func plot(where string, rows []row) string {
	const left, long, high, gap = 220, 420, 16, 34
	var b strings.Builder
	y := 30
	all := groups(rows)
	for _, c := range columns {
		y += gap
		fmt.Fprintf(&b, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s</text>\n", y, html.EscapeString(c.name))
		most := 0.0
		for _, r := range rows {
			most = max(most, c.of(r))
		}
		for _, g := range all {
			y += high + 4
			values := make([]float64, 0, len(g))
			for _, r := range g {
				values = append(values, c.of(r))
			}
			slices.Sort(values)
			v := values[len(values)/2]
			width := 1.0
			if most > 0 {
				width = max(1, v/most*long)
			}
			fmt.Fprintf(&b, "<text x=\"20\" y=\"%d\">%s, %d pods</text><rect x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"%d\" fill=\"%s\"/><text x=\"%.0f\" y=\"%d\">%s</text>\n",
				y, g[0].node, g[0].pods, left, y-high+4, width, high-2, colours[g[0].node], left+width+6, y, short(v))
		}
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n<text x=\"10\" y=\"24\">%s</text>\n%s</svg>\n",
		y+20, html.EscapeString(where), b.String())
}

var colours = map[string]string{own: "#2a7f62", onContainerd: "#3b6ea8", kubelet: "#999999"}
