package agent

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/oom"
)

// OOM says that kills for want of memory are told of. The zero value of each
// field means the default named beside it.
type OOM struct {
	// Open opens the kernel's log; oom.OpenKmsg.
	Open func(fromEnd bool) (oom.Log, error)
	// Fallback is used where that cannot be read; the counters of cgroup v2,
	// if pods have cgroups.
	Fallback oom.Fallback
}

// newOOM makes what watches for kills; nothing if it is not asked for.
func (a *Agent) newOOM() error {
	o := a.cfg.OOM
	if o == nil {
		return nil
	}
	fallback := o.Fallback
	if root := a.podsCgroup(); fallback == nil && a.cgroupV2 && root != noPodsCgroup {
		fallback = oomCounters(root)
	}
	var err error
	a.oom, err = oom.New(oom.Config{
		OnKill: a.killedForMemory, Open: o.Open, Fallback: fallback,
		Log: a.cfg.Log.Named("oom"), Metrics: a.cfg.Metrics,
	})
	return err
}

func (a *Agent) runOOM(ctx context.Context) error {
	if a.oom == nil {
		return nil
	}
	return a.oom.Run(ctx)
}

// reasonOOMKilling is what node-problem-detector calls such events, too.
const reasonOOMKilling = "OOMKilling"

// killedForMemory tells of a process that the kernel killed: the pod, if it was
// one's, and the node, if it had no memory left.
func (a *Agent) killedForMemory(k oom.Kill) {
	reason, message, ofNode := k.NodeEvent()
	pod, name := a.podOfKill(&k)
	switch {
	case pod == nil && ofNode:
		a.nodeEvents.Event(v1.EventTypeWarning, reason, message)
	case pod == nil:
		a.log.Warn("killed for want of memory", zap.String("process", k.Process), zap.Int("pid", k.PID), zap.String("cgroup", k.Cgroup))
	default:
		if ofNode {
			a.nodeEvents.Event(v1.EventTypeWarning, reason, fmt.Sprintf("%s, in pod %s/%s", message, pod.Namespace, pod.Name))
		}
		a.log.Warn("killed for want of memory", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("container", name),
			zap.String("process", k.Process), zap.Int("pid", k.PID), zap.Bool("node", k.Node))
		a.events.Event(pod, v1.EventTypeWarning, reasonOOMKilling, killMessage(pod, name, &k))
		// The runtime tells of the container's end; not so of a process in it.
		a.workers.Resync(pod.UID)
	}
}

// podOfKill finds the pod that a process belonged to, and the container's name.
func (a *Agent) podOfKill(k *oom.Kill) (pod *v1.Pod, container string) {
	if k.PodUID == "" {
		return nil, ""
	}
	pod, ok := a.pods.Pod(k.PodUID)
	if w, known := a.workers.State(k.PodUID); !ok && known {
		pod = w.Pod // it is ending
	}
	if pod == nil {
		return nil, ""
	}
	name := func(obs *observed.Pod) string {
		if obs != nil {
			for i := range obs.Containers {
				if c := &obs.Containers[i]; c.ID == k.ContainerID {
					return c.Name
				}
			}
		}
		return ""
	}
	obs, _ := a.pleg.Get(k.PodUID)
	if container = name(obs); container == "" && k.ContainerID != "" {
		// The kernel may kill it before anybody has seen it.
		ctx, cancel := context.WithTimeout(context.Background(), lookForKilled)
		defer cancel()
		obs, _ = a.pleg.GetNewerThan(ctx, k.PodUID, time.Now())
		container = name(obs)
	}
	return pod, container
}

// lookForKilled bounds the look for a container that was killed before it was
// seen. The news of other kills wait for it.
const lookForKilled = 2 * time.Second

// killMessage has no number of a process in it, so that kills of a container
// that come again and again are one event that is counted.
func killMessage(pod *v1.Pod, container string, k *oom.Kill) string {
	who := "A process"
	if k.Process != "" {
		who = "Process " + k.Process
	}
	of := "pod " + pod.Name
	if container != "" {
		of = "container " + container + " of " + of
	}
	why := "a memory limit was reached"
	if k.Node {
		why = "the node had no memory left"
	}
	return fmt.Sprintf("%s in %s was killed by the kernel: %s%s", who, of, why, limitOfKill(pod, container, k))
}

// limitOfKill tells the container's limit, if it has one.
func limitOfKill(pod *v1.Pod, container string, k *oom.Kill) string {
	if k.Node {
		return ""
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q := list[i].Resources.Limits[v1.ResourceMemory]; list[i].Name == container && !q.IsZero() {
				return " (the container's is " + resource.NewQuantity(q.Value(), resource.BinarySI).String() + ")"
			}
		}
	}
	return ""
}
