package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmgr"
)

func main() {
	root := flag.String("root", "/var/lib/edge", "absolute `path` of the agent's own files and of logs")
	endpoint := flag.String("runtime", "", "CRI `endpoint`, such as unix:///run/containerd/containerd.sock; default: the runtime in this process, which needs runc or crun")
	preload := flag.String("images", "", "absolute `path` of a directory of image archives, for the runtime in this process")
	orders := flag.String("orders", "", "`URL` of the list of orders")
	licences := flag.String("licences", "", "`URL` of the licence server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *endpoint, *preload, *orders, *licences); err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, endpoint, preload, ordersURL, licencesURL string) error {
	log, logs := zap.Must(zap.NewProduction()), filepath.Join(root, "logs")
	rt, err := openRuntime(ctx, endpoint, root, preload, log)
	if err != nil {
		return err
	}
	source, err1 := newOrders(ordersURL, part.OpenStore(filepath.Join(root, "orders"), log), log)
	licences, err2 := newLicences(licencesURL, part.OpenStore(filepath.Join(root, "licences"), log))
	garbage, err3 := pressure.NewCollection(pressure.CollectionConfig{Runtime: rt, Images: rt.images, PodLogsDir: logs, Log: log})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	node, err := node.DetectMachine("/", 110)
	if err != nil {
		log.Warn("failed to detect the machine completely", zap.Error(err))
	}
	a, err := agent.New(agent.Config{
		Node: node, Paths: agent.Paths{Root: root, PodLogs: logs, ContainerLogs: "-"}, Log: log,
		Runtime: rt, Images: agent.Images{Service: rt.images}, Sources: []podmgr.Source{source}, Parts: []part.Part{licences, garbage},
	})
	if err != nil {
		return err
	}
	defer serve(a, filepath.Join(root, "agent.sock"), log)()
	return rt.runWith(ctx, a.Run)
}
