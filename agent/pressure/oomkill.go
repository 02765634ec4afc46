package pressure

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/node/oom"
)

// OOMKillsConfig configures [OOMKills]. The zero value of each field means the default named beside
// it.
type OOMKillsConfig struct {
	// Open opens the kernel's log; oom.openKmsg.
	Open func(fromEnd bool) (oom.Log, error)
	// Fallback is used if the kernel's log cannot be read. It may be the counters of cgroup v2
	// below the cgroup of all pods (oom.NewCounters). If it is nil, there is no fallback.
	Fallback oom.Fallback

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// OOMKills reports the kernel's OOM kills as events: of the pod that lost a
// process, and of the node if that had no memory left.
//
//	p, err := pressure.NewOOMKills(pressure.OOMKillsConfig{
//		Fallback: oom.NewCounters("/sys/fs/cgroup", "/kubepods"), // cgroup v2
//	})
//
// Package github.com/nodewright/nodewright/node/oom finds the kills, in the kernel's
// log or by the counters of cgroup v2. This part finds the pod and the container of a
// kill.
//
// # Hooks
//
// The only hook is part.Runner. A kill causes the event OOMKilling of its pod (the
// reason that node-problem-detector uses), the kubelet's event SystemOOM if the node
// was out of memory, a log line, and a sync of the pod.
//
// # Ownership
//
// [OOMKills.Run] owns every goroutine. Kills are handled one after the other; later
// ones wait in the kernel's log.
//
// # Faults
//
// The kernel may kill a container before the agent has observed it. Then the part asks
// the runtime once, for at most 2 s. If that fails, the event names only the pod. For
// failures of the kernel's log, see [oom.Watcher].
type OOMKills struct {
	log   *zap.Logger
	kills *oom.Watcher
	host  part.Host       // set by Join
	run   context.Context // set by Run; its goroutines use it
}

var (
	_ part.Joiner = (*OOMKills)(nil)
	_ part.Runner = (*OOMKills)(nil)
)

// NewOOMKills checks cfg and returns a part.
func NewOOMKills(cfg OOMKillsConfig) (*OOMKills, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	p := &OOMKills{log: cfg.Log}
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
func (*OOMKills) Name() string { return "oom" }

// Join implements part.Joiner.
func (p *OOMKills) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// Run implements part.Runner: it reports kills until ctx ends.
func (p *OOMKills) Run(ctx context.Context) error {
	p.run = ctx
	return p.kills.Run(ctx)
}

// reasonOOMKilling is also the reason of node-problem-detector.
const reasonOOMKilling = "OOMKilling"

// killed reports a process that the kernel killed, as an event of its pod. If the node was out of
// memory, it also records an event of the node.
func (p *OOMKills) killed(k oom.Kill) {
	v := p.victimOf(&k)
	ofNode := p.reportNode(&k, v.pod)
	if v.pod != nil {
		p.reportPod(&k, v)
	} else if !ofNode {
		p.log.Warn("process killed: out of memory", zap.String("process", k.Process), zap.Int("pid", k.PID), zap.String("cgroup", k.Cgroup))
	}
}

// reportNode records an event of the node if the kill concerns the node, and reports whether it
// does. pod may be nil.
func (p *OOMKills) reportNode(k *oom.Kill, pod *v1.Pod) bool {
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

func (p *OOMKills) reportPod(k *oom.Kill, v victim) {
	p.log.Warn("process killed: out of memory", zap.String("pod", v.pod.Namespace+"/"+v.pod.Name), zap.String("container", v.container),
		zap.String("process", k.Process), zap.Int("pid", k.PID), zap.Bool("node", k.Node))
	p.host.Event(v.pod, nil, v1.EventTypeWarning, reasonOOMKilling, v.message(k))
	// The runtime reports the end of a container, but not the end of another process in the
	// container.
	p.host.Resync(v.pod.UID)
}
