// Command scale is "make scale": it measures how long nodes take to start many pods at once. Three
// kinds of nodes run one after the other: the agent on its own runtime, the agent on a private
// containerd and, if build/bin has a kubelet, the kubelet on another containerd.
//
//	scale [--pods 100,500] [--nodes own,containerd,kubelet] [--rounds 2] [--cpus 0-1] [--network none] [--markdown FILE] [--svg FILE]
//
// Each container writes a file when it runs. The start times are the modification times of these
// files, so that polling does not disturb the node while the pods start. In each round every node
// is measured once. The command needs root, and the programs of "make tools build".
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	pods := flag.String("pods", "100,500", "the `numbers` of pods")
	nodes := flag.String("nodes", "own,containerd,kubelet", "the `nodes`: own, containerd, kubelet")
	rounds := flag.Int("rounds", 2, "the `number` of measurements of each node")
	cpus := flag.String("cpus", "", "the `list` of CPUs that the nodes may use, in the format of taskset(1); default: all")
	network := flag.String("network", "host", "the pods' `network`: host; with --nodes=own also none or bridge")
	markdown := flag.String("markdown", "", "the `file` to write the table to")
	svg := flag.String("svg", "", "the `file` to write the plot to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	told := context.AfterFunc(ctx, func() {
		stop() // a second Ctrl-C ends the program
		fmt.Fprintln(os.Stderr, "scale: interrupted; it removes its pods, which may take minutes; a second Ctrl-C leaves them")
	})
	err := run(ctx, *pods, *nodes, *rounds, settings{cpus: *cpus, network: *network}, *markdown, *svg)
	told()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pods, nodes string, rounds int, s settings, markdown, svg string) error {
	var counts []int
	for text := range strings.SplitSeq(pods, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--pods=%s: %q: want positive numbers, separated by commas", pods, text)
		}
		counts = append(counts, n)
	}
	var err error
	if s.repository, err = os.Getwd(); err != nil {
		return err
	}
	s.bin = filepath.Join(s.repository, "build", "bin")
	if err := os.Setenv("PATH", s.bin+":"+os.Getenv("PATH")); err != nil { // runc
		return err
	}
	names := strings.Split(nodes, ",")
	for _, name := range names {
		if !slices.Contains([]string{own, onContainerd, kubelet}, name) {
			return fmt.Errorf("--nodes=%s: %q: want own, containerd or kubelet", nodes, name)
		}
	}
	if s.network != "host" && !slices.Equal(names, []string{own}) {
		return fmt.Errorf("--network=%s: want host, unless --nodes=own", s.network)
	}
	if _, err := os.Stat(filepath.Join(s.bin, kubelet)); err != nil && slices.Contains(names, kubelet) {
		fmt.Fprintln(os.Stderr, "scale: skipping the kubelet: build/bin has none; make kubelet builds it")
		names = slices.DeleteFunc(names, func(n string) bool { return n == kubelet })
	}
	var rows []row
	var failed error
	for _, n := range counts {
		for range rounds {
			for _, name := range names {
				r, err := measure(ctx, s, name, n)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s, %d pods: %w", name, n, err))
					fmt.Fprintln(os.Stderr, "scale:", name, n, "pods:", err)
					continue
				}
				rows = append(rows, r)
				fmt.Println(r)
			}
		}
	}
	where := fmt.Sprintf("%d CPUs (%s), pods on the network %s", runtime.NumCPU(), cmp.Or(s.cpus, "all"), s.network)
	text := table(where, rows)
	fmt.Print("\n", text)
	if markdown != "" {
		failed = errors.Join(failed, os.WriteFile(markdown, []byte(text), 0o644)) //nolint:gosec // a document
	}
	if svg != "" {
		failed = errors.Join(failed, os.WriteFile(svg, []byte(plot(where, rows)), 0o644)) //nolint:gosec // a picture
	}
	return failed
}
