package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent/hollow"
)

// options are the program's flags.
type options struct {
	nodes                     int
	name, kubeconfig, dir     string
	maxPods, cpus, numa       int
	memory                    string
	cpuPolicy, topologyPolicy string
	devices                   counts
	labels                    pairs
	latency                   time.Duration
	failures                  float64
	seed                      uint64
	podsPerNode               int
	every, end                time.Duration
	profile                   string

	log *zap.Logger
	out io.Writer
}

func (o *options) validate() error {
	switch {
	case o.nodes < 1:
		return fmt.Errorf("--nodes=%d: want 1 or more", o.nodes)
	case o.podsPerNode < 0 || o.podsPerNode > o.maxPods:
		return fmt.Errorf("--pods-per-node=%d: want 0 to the %d of --max-pods", o.podsPerNode, o.maxPods)
	case o.podsPerNode > 0 && o.kubeconfig != "":
		return fmt.Errorf("--pods-per-node=%d: want 0 with --kubeconfig, whose cluster has a scheduler", o.podsPerNode)
	case o.every <= 0:
		return fmt.Errorf("--report=%v: want a duration above 0", o.every)
	}
	return nil
}

// node returns the configuration of node i.
func (o *options) node(i int) (hollow.Config, error) {
	memory, err := resource.ParseQuantity(o.memory)
	if err != nil {
		return hollow.Config{}, fmt.Errorf("--memory=%s: %w", o.memory, err)
	}
	name := o.name + "-" + strconv.Itoa(i)
	return hollow.Config{
		Name: name, Dir: filepath.Join(o.dir, name), Kubeconfig: o.kubeconfig, Labels: maps.Clone(o.labels), IP: address(i),
		CPUs: o.cpus, Memory: memory.Value(), Pods: o.maxPods, NUMANodes: o.numa, Devices: o.devices,
		Latency: o.latency, FailureRate: o.failures, Seed: o.seed + uint64(i), //nolint:gosec // not negative
		Configure: func(c *kubeletconfig.Config) {
			c.CPUManagerPolicy, c.TopologyManagerPolicy = o.cpuPolicy, o.topologyPolicy
			if o.cpuPolicy != "none" {
				c.ReservedSystemCPUs = "0"
			}
		},
		Log: o.log.With(zap.String("node", name)),
	}, nil
}

// counts is a flag that maps names to numbers.
type counts map[string]int

// String implements flag.Value.
func (c *counts) String() string { return list(*c) }

// Set implements flag.Value.
func (c *counts) Set(text string) error {
	name, number, _ := strings.Cut(text, "=")
	n, err := strconv.Atoi(number)
	if err != nil || name == "" || n < 1 {
		return fmt.Errorf("%q: want resource=count, with a count of 1 or more", text)
	}
	if *c == nil {
		*c = counts{}
	}
	(*c)[name] = n
	return nil
}

// pairs is a flag that maps names to strings.
type pairs map[string]string

// String implements flag.Value.
func (p *pairs) String() string { return list(*p) }

// Set implements flag.Value.
func (p *pairs) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q: want key=value", text)
	}
	if *p == nil {
		*p = pairs{}
	}
	(*p)[name] = value
	return nil
}

func list[V any](m map[string]V) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return strings.Join(out, ",")
}
