// Command hollow runs many nodes in one process: complete agents with runtimes in
// memory. It is for tests of schedulers, controllers and autoscalers. README.md
// shows how to use it; package nodeagent/hollow has the nodes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
)

func main() {
	o := options{}
	flag.IntVar(&o.nodes, "nodes", 10, "number of nodes")
	flag.StringVar(&o.name, "name", "hollow", "prefix of the nodes' names")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`path` of a kubeconfig for the API server; default: an API server in the memory of this process, without other clients")
	flag.StringVar(&o.dir, "dir", "", "`path` of a directory for the nodes' files; default: a temporary one")
	flag.IntVar(&o.maxPods, "max-pods", 110, "maximum number of pods per node")
	flag.IntVar(&o.cpus, "cpus", 4, "CPUs of each node")
	flag.StringVar(&o.memory, "memory", "16Gi", "memory of each node, a `quantity`")
	flag.IntVar(&o.numa, "numa-nodes", 1, "NUMA nodes of each node, among which CPUs, memory and devices are divided")
	flag.StringVar(&o.cpuPolicy, "cpu-manager-policy", "none", "none or static")
	flag.StringVar(&o.topologyPolicy, "topology-manager-policy", "none", "none, best-effort, restricted or single-numa-node")
	flag.Var(&o.devices, "device", "`resource=count` of devices of each node, such as example.com/gpu=8; may be repeated")
	flag.Var(&o.labels, "label", "`key=value` of a label of each node; may be repeated")
	flag.DurationVar(&o.latency, "latency", 0, "duration of each creation of a sandbox, pull of an image and start of a container")
	flag.Float64Var(&o.failures, "failure-rate", 0, "share of these calls that fail, 0 to 1")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the random choice of failing calls")
	flag.IntVar(&o.podsPerNode, "pods-per-node", 0, "number of pods that are bound to each node; only with the API server in memory")
	flag.DurationVar(&o.every, "report", 10*time.Second, "time between two lines of figures")
	flag.DurationVar(&o.end, "for", 0, "time to run after all nodes and their pods are ready; default: until a signal")
	flag.StringVar(&o.profile, "profile", "", "`path` of a directory for profiles of CPU and memory at rest; default: no profiles")
	verbose := flag.Bool("v", false, "log the nodes' warnings and errors")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.log, o.out = zap.NewNop(), os.Stdout
	if *verbose {
		o.log = zap.Must(zap.NewProduction(zap.IncreaseLevel(zap.WarnLevel)))
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "hollow:", err)
		os.Exit(1)
	}
}
