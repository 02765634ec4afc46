package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/nodeagent/hollow"
)

// startsInFlight limits the nodes that are created at the same time.
const startsInFlight = 16

// history is the number of watch events that the API server in memory stores for
// clients that restart a watch.
const history = 10_000

// fleet has the nodes of this process.
type fleet struct {
	options
	api   *kubeapitest.Server // nil with --kubeconfig
	nodes []*hollow.Node
	began time.Time
}

// run runs the nodes until ctx ends, or until the time of --for is over.
func run(ctx context.Context, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "hollow")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.dir = dir
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	f := &fleet{options: o, began: time.Now()}
	if o.kubeconfig == "" {
		f.api = kubeapitest.New()
		f.api.Lean(history)
		defer f.api.Stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := f.make(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range f.nodes {
		g.Go(func() error {
			if err := n.Run(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	g.Go(func() error {
		defer cancel()
		return f.watch(ctx)
	})
	return g.Wait()
}

// make creates the nodes, and the pods of --pods-per-node in the API server in memory.
func (f *fleet) make(ctx context.Context) error {
	f.nodes = make([]*hollow.Node, f.options.nodes)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(startsInFlight)
	for i := range f.nodes {
		g.Go(func() error {
			cfg, err := f.node(i)
			if err != nil {
				return err
			}
			if f.api != nil {
				cfg.Transport = f.api.Transport()
			}
			f.nodes[i], err = hollow.New(ctx, cfg)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		var errs []error
		for _, n := range f.nodes {
			if n != nil {
				errs = append(errs, n.Close())
			}
		}
		return errors.Join(append(errs, err)...)
	}
	for i, n := range f.nodes {
		for j := range f.podsPerNode {
			f.api.Create(pod(n.Builder().Node.Name, fmt.Sprintf("pod-%d-%d", i, j)))
		}
	}
	return nil
}

// pod returns a pod that is bound to a node.
func pod(node, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: v1.PodSpec{
			NodeName: node, RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault, TerminationGracePeriodSeconds: new(int64(30)),
			Containers:  []v1.Container{{Name: "c", Image: "registry.example/web:1", ImagePullPolicy: v1.PullIfNotPresent}},
			Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		},
	}
}

// watch prints figures until ctx ends, or until the time of --for is over. In the second case
// it also prints the usage at rest.
func (f *fleet) watch(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for !f.settled() {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil // SIGINT and SIGTERM are not errors
		}
		select {
		case <-tick.C:
			f.report("starting")
		default:
		}
	}
	f.report("all started")
	debug.FreeOSMemory() // excludes the memory that only the start needed from the measurement
	rest := f.figures()
	p, err := profile(f.profile)
	if err != nil {
		return err
	}
	defer p.end()
	var over <-chan time.Time
	if f.end > 0 {
		over = time.After(f.end)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			f.since(rest)
			return p.heap()
		case <-tick.C:
			f.report("at rest")
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// settled reports whether all nodes are ready and all pods of --pods-per-node are running.
func (f *fleet) settled() bool {
	now := f.figures()
	return now.nodes == len(f.nodes) && now.pods >= f.podsPerNode*len(f.nodes)
}

// address returns the address of node i, in 198.18.0.0/15, which is reserved for
// benchmarks (RFC 2544).
func address(i int) netip.Addr {
	n := 198<<24 | 18<<16 | uint32(i+1)&(1<<17-1) //nolint:gosec // masked
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
