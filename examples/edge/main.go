// Command edge is a node agent in one file. It needs no Kubernetes cluster: its pods come from a list
// at a URL. It shows how to embed package agent with a source of pods of your own.
//
//	edge --orders https://plant.example/orders.json --root /var/lib/edge
//
// The list has all pods that the node should run:
//
//	[{"name": "press", "image": "registry.example/press:3", "args": ["--line", "7"]},
//	 {"name": "gauge", "image": "registry.example/gauge:1"}]
//
// If a request fails, or if an order is invalid, the pods of the last valid list keep running. This
// list is also on disk, so that a node that starts without a network runs it.
//
// The program needs root, and runc or crun. Its containers keep running after it has ended. The
// commands of examples/agent show what it runs: agent get pods --root-dir /var/lib/edge.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

func main() {
	root := flag.String("root", "/var/lib/edge", "absolute `path` of the directory for all files")
	images := flag.String("images", "", "absolute `path` of a directory of image archives, which are imported at the start")
	url := flag.String("orders", "", "`URL` of the list of orders")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *images, *url, zap.Must(zap.NewProduction())); err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, images, url string, log *zap.Logger) error {
	machine, err := node.DetectMachine("/", 110) // at most 110 pods
	if err != nil {
		log.Warn("failed to detect the machine completely", zap.Error(err))
	}
	// The container runtime, in this process. For containerd or CRI-O, use cri.New.
	rt, err := localcri.NewInProcess(ctx, localcri.InProcessConfig{RootDir: filepath.Join(root, "localcri"), PreloadDir: images, Log: log})
	if err != nil {
		return err
	}
	// A part that removes old logs, dead containers and unused images.
	logs := filepath.Join(root, "logs")
	garbage, err := pressure.NewCollection(pressure.CollectionConfig{Runtime: rt.Runtime(), Images: rt.Images(), PodLogsDir: logs, Log: log})
	if err != nil {
		return err
	}
	source := &orders{url: url, client: &http.Client{Timeout: 10 * time.Second}, store: part.OpenStore(filepath.Join(root, "orders"), log), log: log}
	a, err := agent.New(agent.Config{
		Node: machine, Paths: agent.Paths{Root: root, PodLogs: logs, ContainerLogs: "-"}, Log: log,
		Runtime: rt.Runtime(), Images: agent.Images{Service: rt.Images()},
		Sources: []podmgr.Source{source}, Parts: []part.Part{garbage},
	})
	if err != nil {
		return err
	}
	go func() { // until the process ends
		<-a.Ready()
		l, err := local.Listen(filepath.Join(root, "agent.sock"))
		if err == nil {
			err = http.Serve(l, local.Handler(a, nil))
		}
		log.Error("failed to serve the agent's socket", zap.Error(err))
	}()
	return rt.RunWith(ctx, a.Run)
}

// orders is a podmgr.Source with the pods of the list at a URL.
type orders struct {
	url    string
	client *http.Client
	store  part.Store
	log    *zap.Logger
	list   []byte // in the store; nil if there is none
}

// Name implements podmgr.Source.
func (*orders) Name() string { return "orders" }

// Run implements podmgr.Source. After an error the agent keeps the pods, shows the error, and runs the
// source again after a pause of 1 s to 1 min.
func (o *orders) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	if o.list == nil { // the agent has just started, maybe without a network
		var err error
		if o.list, err = o.store.Read("list"); err == nil {
			err = o.apply(o.list, deliver)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.log.Warn("failed to read stored orders", zap.Error(err))
		}
	}
	for {
		list, err := o.fetch(ctx)
		if err == nil {
			err = o.apply(list, deliver)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Second):
		}
	}
}

// fetch requests the list, and reads at most 1 MiB.
func (o *orders) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get orders: status %d", resp.StatusCode)
	}
	return io.ReadAll(http.MaxBytesReader(nil, resp.Body, 1<<20))
}

// apply delivers the pods of a list. One invalid order makes the whole list invalid, since the agent
// ends pods that are missing.
func (o *orders) apply(list []byte, deliver func(podmgr.Snapshot)) error {
	var all []struct {
		Name  string   `json:"name"`
		Image string   `json:"image"`
		Args  []string `json:"args"`
	}
	mistakes, err := json.UnmarshalStrict(list, &all)
	if err := errors.Join(append(mistakes, err)...); err != nil {
		return fmt.Errorf("not a list of orders: %w", err)
	}
	if all == nil {
		return errors.New("not a list of orders: null")
	}
	var pods []*v1.Pod
	for i, o := range all {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.Name}, Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, Containers: []v1.Container{
			{Name: "main", Image: o.Image, Args: o.Args, ImagePullPolicy: v1.PullIfNotPresent},
		}}}
		pod.UID = podmeta.HashUID(pod) // a changed order is another pod
		podmgr.Default(pod)
		if err := podmgr.Validate(pod).ToAggregate(); err != nil {
			return fmt.Errorf("order %d: %w", i+1, err)
		}
		pods = append(pods, pod)
	}
	// Stored before it takes effect, so that a restart does not return to an older list.
	if !bytes.Equal(list, o.list) {
		if err := o.store.Write("list", list); err != nil {
			return err
		}
		o.list = list
	}
	deliver(podmgr.Snapshot{Pods: pods})
	return nil
}
