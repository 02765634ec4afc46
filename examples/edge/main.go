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
	"github.com/nodewright/nodewright/agent/collection"
	"github.com/nodewright/nodewright/agent/machine"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/podmgr"
)

func main() {
	root := flag.String("root", "/var/lib/edge", "absolute `path` of the agent's own files and of logs")
	socket := flag.String("runtime", "unix:///run/containerd/containerd.sock", "CRI `endpoint`")
	orders := flag.String("orders", "", "`URL` of what should run")
	licences := flag.String("licences", "", "`URL` of the licence server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *socket, *orders, *licences); err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, socket, ordersURL, licencesURL string) error {
	log, logs := zap.Must(zap.NewProduction()), filepath.Join(root, "logs")
	client, err1 := cri.New(cri.Config{Endpoint: socket, Log: log})
	source, err2 := newOrders(ordersURL, part.OpenStore(filepath.Join(root, "orders"), log), log)
	licences, err3 := newLicences(licencesURL, part.OpenStore(filepath.Join(root, "licences"), log))
	garbage, err4 := collection.New(collection.Config{Runtime: client, Images: client, PodLogsDir: logs, Log: log})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	defer func() { _ = client.Close(ctx) }()
	node, err := machine.Detect("/", 110)
	if err != nil {
		log.Warn("failed to read all of the machine", zap.Error(err))
	}
	a, err := agent.New(agent.Config{
		Node: node, Paths: agent.Paths{Root: root, PodLogs: logs, ContainerLogs: "-"}, Log: log,
		Runtime: client, Images: agent.Images{Service: client}, Sources: []podmgr.Source{source}, Parts: []part.Part{licences, garbage},
	})
	if err != nil {
		return err
	}
	defer serve(a, filepath.Join(root, "agent.sock"), log)()
	return a.Run(ctx)
}
