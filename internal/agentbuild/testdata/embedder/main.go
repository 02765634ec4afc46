// Command embedder is a node agent in a module outside of the repository, with its
// own container runtime. It runs until all pods of its configuration are ready,
// prints their number, and removes everything that it created.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeletconfig"
	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/localcri"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := kubeletconfig.NewFlags()
	set := flag.NewFlagSet("embedder", flag.ContinueOnError)
	flags.Bind(set)
	images := set.String("images", "", "a `directory` with image archives")
	if err := set.Parse(args); err != nil {
		return err
	}
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		return err
	}
	log, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	cfg := runtime.InProcessConfig{PreloadDir: *images, Network: runtime.NetworkBridge}
	n, err := nodeagent.New(ctx, nodeagent.Options{
		Config: conf, Log: log, Parts: nodeagent.StandardWithout("eviction"), LocalRuntime: localcri.Runtime(cfg), Settings: nodeagent.Settings{LeaveHost: true},
	})
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(running) }()
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if pods := n.Pods(); len(pods) > 0 && ready(pods) {
			fmt.Println(len(pods), "pods are ready")
			break
		}
	}
	end()
	if err := <-ended; err != nil {
		return err
	}
	return localcri.Reset(context.WithoutCancel(ctx), localcri.ResetOptions{RootDir: conf.RootDir, Images: true, Log: log}, cfg)
}

func ready(pods []*v1.Pod) bool {
	for _, p := range pods {
		if s := p.Status; s.Phase != v1.PodRunning || len(s.ContainerStatuses) != len(p.Spec.Containers) || !s.ContainerStatuses[0].Ready {
			return false
		}
	}
	return true
}
