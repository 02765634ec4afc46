package oomkill

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/node/oom"
)

// Config holds what a Part needs. The zero value of each field means the default
// named beside it.
type Config struct {
	// Open opens the kernel's log; oom.OpenKmsg.
	Open func(fromEnd bool) (oom.Log, error)
	// Fallback is used where the log cannot be read, such as the counters of
	// cgroup v2 below the cgroup of all pods, oom.NewCounters; none.
	Fallback oom.Fallback

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Part follows the kernel's OOM kills.
type Part struct {
	log   *zap.Logger
	kills *oom.Manager
	host  part.Host       // set by Join
	run   context.Context // set by Run, and of its goroutines
}

var (
	_ part.Joiner = (*Part)(nil)
	_ part.Runner = (*Part)(nil)
)

// New checks cfg and returns a Part at rest.
func New(cfg Config) (*Part, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	p := &Part{log: cfg.Log}
	var err error
	p.kills, err = oom.New(oom.Config{
		OnKill: p.killed, Open: cfg.Open, Fallback: cfg.Fallback, Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("oomkill: %w", err)
	}
	return p, nil
}

// Name implements part.Part.
func (*Part) Name() string { return "oom" }

// Join implements part.Joiner.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("oomkill: the part belongs to an agent already")
	}
	p.host = h
	return nil
}

// Run implements part.Runner: it follows kills until ctx ends.
func (p *Part) Run(ctx context.Context) error {
	p.run = ctx
	return p.kills.Run(ctx)
}

// reasonOOMKilling is the reason that node-problem-detector uses as well.
const reasonOOMKilling = "OOMKilling"

// killed reports a process that the kernel killed: of the pod that it belonged
// to, and of the node if that had no memory left.
func (p *Part) killed(k oom.Kill) {
	v := p.victimOf(&k)
	ofNode := p.reportNode(&k, v.pod)
	if v.pod != nil {
		p.reportPod(&k, v)
	} else if !ofNode {
		p.log.Warn("process killed: out of memory", zap.String("process", k.Process), zap.Int("pid", k.PID), zap.String("cgroup", k.Cgroup))
	}
}

// reportNode records the event of the node if the kill is a matter of the node,
// and reports whether it is. pod may be nil.
func (p *Part) reportNode(k *oom.Kill, pod *v1.Pod) bool {
	reason, message, ok := k.NodeEvent()
	if !ok {
		return false
	}
	if pod != nil {
		message = fmt.Sprintf("%s, in pod %s/%s", message, pod.Namespace, pod.Name)
	}
	p.host.NodeEvent(v1.EventTypeWarning, reason, message)
	return true
}

func (p *Part) reportPod(k *oom.Kill, v victim) {
	p.log.Warn("process killed: out of memory", zap.String("pod", v.pod.Namespace+"/"+v.pod.Name), zap.String("container", v.container),
		zap.String("process", k.Process), zap.Int("pid", k.PID), zap.Bool("node", k.Node))
	p.host.Event(v.pod, nil, v1.EventTypeWarning, reasonOOMKilling, v.message(k))
	// The runtime reports the end of a container, and not that of another
	// process in it.
	p.host.Resync(v.pod.UID)
}
