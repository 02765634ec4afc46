package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodewright/nodewright/agent/local"
)

// logsFlags are the flags of "agent logs".
type logsFlags struct {
	clientFlags
	local.LogOptions

	since       time.Duration
	sinceTime   string
	labels      string
	all, prefix bool
	streams     int
}

// selectedTail is the default of --tail with --selector: lines per container.
const selectedTail = 10

func newLogs(std stdio) *cobra.Command {
	var l logsFlags
	cmd := &cobra.Command{
		Use: "logs [NAME [CONTAINER]]", Short: "Print the logs of containers",
		Example: `  agent logs web
  agent logs web side -f --tail 10
  agent logs web --previous
  agent logs web --all-containers --prefix
  agent logs -l app=web -f`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.labels != "" && !cmd.Flags().Changed("tail") {
				l.Tail = selectedTail
			}
			return l.logs(cmd.Context(), std, args)
		},
	}
	l.registerPods(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&l.Container, "container", "c", "", "the `container`; by default the first")
	fs.BoolVar(&l.all, "all-containers", false, "print the logs of all containers of the pod")
	fs.StringVarP(&l.labels, "selector", "l", "", "print the logs of all pods with these `labels`, such as app=web")
	fs.BoolVar(&l.prefix, "prefix", false, "begin each line with its pod and container")
	fs.BoolVarP(&l.Follow, "follow", "f", false, "print new lines until the container ends")
	fs.IntVar(&l.streams, "max-log-requests", 5, "the maximum `number` of containers to follow")
	fs.BoolVarP(&l.Previous, "previous", "p", false, "print the log of the previous instance")
	fs.BoolVar(&l.Timestamps, "timestamps", false, "print the time of each line")
	fs.Int64Var(&l.Tail, "tail", -1, "print only the last `lines`; -1 means all; with --selector the default is 10")
	fs.DurationVar(&l.since, "since", 0, "print only lines that are newer than this `duration`")
	fs.StringVar(&l.sinceTime, "since-time", "", "print only lines that are newer than this `time`, such as 2030-01-02T15:04:05Z")
	completeFlag(cmd, "container", l.from(l.containers))
	cmd.ValidArgsFunction = l.from(func(ctx context.Context, args []string) []string {
		switch len(args) {
		case 0:
			return l.pods(ctx, args)
		case 1:
			return l.containers(ctx, args)
		}
		return nil
	})
	return cmd
}

// validate checks the flags and the names, and sets Container and Since from them.
func (l *logsFlags) validate(names []string) error {
	switch {
	case l.since < 0:
		return fmt.Errorf("--since=%v: want a duration above 0", l.since)
	case l.Tail < -1:
		return fmt.Errorf("--tail=%d: want a number of lines, or -1 for all", l.Tail)
	case l.since > 0 && l.sinceTime != "":
		return errors.New("--since with --since-time: want one of them")
	case l.labels != "" && len(names) > 0:
		return fmt.Errorf("--selector with %q: want one of them", names[0])
	case l.labels == "" && (len(names) == 0 || len(names) > 2):
		return errPodName
	case len(names) == 2 && l.Container != "" && l.Container != names[1]:
		return fmt.Errorf("-c %s with container %q: want one of them", l.Container, names[1])
	case len(names) == 2:
		l.Container = names[1]
	}
	if l.all && l.Container != "" {
		return fmt.Errorf("--all-containers with container %q: want one of them", l.Container)
	}
	if l.since > 0 {
		l.Since = time.Now().Add(-l.since)
	}
	if l.sinceTime != "" {
		at, err := time.Parse(time.RFC3339Nano, l.sinceTime)
		if err != nil {
			return fmt.Errorf("--since-time=%q: want a time such as 2030-01-02T15:04:05Z", l.sinceTime)
		}
		l.Since = at
	}
	return nil
}

// logSource identifies the container of a log.
type logSource struct{ namespace, pod, container string }

func (l *logsFlags) logs(ctx context.Context, std stdio, names []string) error {
	if err := l.validate(names); err != nil {
		return err
	}
	cl := l.client()
	pods, err := l.podsOf(ctx, std, cl, names)
	if err != nil {
		return err
	}
	var sources []logSource
	for _, p := range pods {
		containers := []string{l.Container}
		if l.all {
			containers = containersOf(p)
		} else if l.Container == "" && len(p.Spec.Containers) > 0 {
			containers[0] = p.Spec.Containers[0].Name
		}
		for _, c := range containers {
			sources = append(sources, logSource{p.Namespace, p.Name, c})
		}
	}
	if l.Follow && len(sources) > l.streams {
		return fmt.Errorf("--follow of %d containers: want at most --max-log-requests=%d", len(sources), l.streams)
	}
	out := &lineWriter{w: std.out}
	if !l.Follow {
		var errs []error
		for _, s := range sources {
			errs = append(errs, l.copyLog(ctx, cl, s, out))
		}
		return errors.Join(errs...)
	}
	var all errgroup.Group
	for _, s := range sources {
		all.Go(func() error { return l.copyLog(ctx, cl, s, out) })
	}
	return all.Wait()
}

// podsOf returns the pod with the first of names or, without names, the pods that --selector selects.
func (l *logsFlags) podsOf(ctx context.Context, std stdio, cl *local.Client, names []string) ([]*v1.Pod, error) {
	if len(names) > 0 {
		p, err := l.findOrExplain(ctx, std, cl, names[0])
		return []*v1.Pod{p}, err
	}
	selector, err := labels.Parse(l.labels)
	if err != nil {
		return nil, fmt.Errorf("--selector=%q: %w", l.labels, err)
	}
	list, err := cl.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var out []*v1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; selector.Matches(labels.Set(p.Labels)) && (l.namespace == "" || p.Namespace == l.namespace) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		fmt.Fprintln(std.err, "no pods with these labels")
	}
	return out, nil
}

// containersOf returns the names of all containers of a pod: init containers, containers, ephemeral
// containers.
func containersOf(p *v1.Pod) (names []string) {
	for i := range p.Spec.InitContainers {
		names = append(names, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		names = append(names, p.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// copyLog copies a container's log to out. It returns nil if ctx ends.
func (l *logsFlags) copyLog(ctx context.Context, cl *local.Client, s logSource, out *lineWriter) error {
	o := l.LogOptions
	o.Container = s.container
	body, err := cl.Log(ctx, s.namespace, s.pod, o)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	prefix := ""
	if l.prefix {
		prefix = "[pod/" + s.pod + "/" + s.container + "] "
	}
	switch err := out.copy(prefix, body); {
	case err == nil, errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the log ended early: %w", err)
	default:
		return err
	}
}

// lineWriter writes the lines of several readers to w. Lines of different readers are not mixed.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// copy copies from line by line, with a prefix before each line. It writes a line that is longer than
// its buffer in several parts.
func (l *lineWriter) copy(prefix string, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	begins := true
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			if werr := l.write(begins, prefix, line); werr != nil {
				return werr
			}
			begins = err == nil
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

func (l *lineWriter) write(begins bool, prefix string, line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if begins && prefix != "" {
		line = append([]byte(prefix), line...)
	}
	_, err := l.w.Write(line)
	return err
}
