package pressure

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/oom"
)

// lookTimeout limits the search for a container that was killed before it was observed. Reports
// of later kills wait for it.
const lookTimeout = 2 * time.Second

// victim is the pod and the container of a killed process.
type victim struct {
	pod       *v1.Pod // nil if the process belongs to no pod
	container string  // name of the container; "" if it is not known
}

// victimOf returns the pod and the container of a killed process.
func (p *OOMKills) victimOf(k *oom.Kill) victim {
	pod := p.pod(k.PodUID)
	if pod == nil {
		return victim{}
	}
	name := containerName(p.host.Observed(k.PodUID).Pod, k.ContainerID)
	if name == "" && k.ContainerID != "" {
		// The kernel may kill a container before it has been observed.
		ctx, cancel := context.WithTimeout(p.run, lookTimeout)
		defer cancel()
		obs, _ := p.host.Observe(ctx, k.PodUID)
		name = containerName(obs, k.ContainerID)
	}
	return victim{pod, name}
}

// pod returns a pod, even if it is terminating and no source wants it any more. It returns nil if
// the agent does not know the pod.
func (p *OOMKills) pod(uid types.UID) *v1.Pod {
	if uid == "" {
		return nil
	}
	if pod, ok := p.host.Pod(uid); ok {
		return pod
	}
	w, _ := p.host.Worker(uid)
	return w.Pod
}

func containerName(obs *observed.Pod, id string) string {
	if obs == nil {
		return ""
	}
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.ID == id {
			return c.Name
		}
	}
	return ""
}

// message returns the message of the event. It has no process ID, so that repeated kills of
// a container are counted as one event.
func (v victim) message(k *oom.Kill) string {
	who := "A process"
	if k.Process != "" {
		who = "Process " + k.Process
	}
	of := "pod " + v.pod.Name
	if v.container != "" {
		of = "container " + v.container + " of " + of
	}
	why := "a memory limit was reached" + v.limit()
	if rss := k.AnonRSS + k.FileRSS + k.ShmemRSS; rss >= 1<<20 {
		// Rounded, so that repeated kills have the same message.
		why += fmt.Sprintf("; the process had %dMi", (rss+1<<19)>>20)
	}
	if k.Node {
		why = "the node had no memory left"
	}
	return fmt.Sprintf("%s in %s was killed by the kernel: %s", who, of, why)
}

// limit returns the container's memory limit in brackets. It returns "" if the container has no
// limit.
func (v victim) limit() string {
	for _, list := range [][]v1.Container{v.pod.Spec.InitContainers, v.pod.Spec.Containers} {
		for i := range list {
			if q := list[i].Resources.Limits[v1.ResourceMemory]; list[i].Name == v.container && !q.IsZero() {
				return " (the container's is " + resource.NewQuantity(q.Value(), resource.BinarySI).String() + ")"
			}
		}
	}
	return ""
}
