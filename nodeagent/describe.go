package nodeagent

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/node/status"
)

// description holds what [Node.DescribeNode] has read and does not read again.
type description struct {
	mu    sync.Mutex
	ready v1.NodeCondition
	facts *status.Facts // constant while the machine is up
	about string        // name and version of the runtime
}

// DescribeNode sets the labels and the status of a Node object of a node without a cluster. It implements
// local.NodeDescriber.
func (n *Node) DescribeNode(ctx context.Context, into *v1.Node) {
	b, d := n.builder, &n.described
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.facts == nil {
		if f, err := b.Describer().Facts(ctx); err == nil {
			d.facts = &f
		} else {
			d.facts = &status.Facts{} // the node is described without them
		}
	}
	if d.about == "" {
		if v, err := b.Runtime.Version(ctx, ""); err == nil {
			d.about = v.GetRuntimeName() + "://" + v.GetRuntimeVersion()
		}
	}
	into.Labels = maps.Clone(b.Node.WithDefaults().Labels)
	st := &into.Status
	st.Capacity, st.Allocatable = n.Resources()
	for _, ip := range b.Node.IPs {
		st.Addresses = append(st.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	st.Addresses = append(st.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: b.Node.Name})
	st.DaemonEndpoints.KubeletEndpoint.Port = b.Config.Port
	st.NodeInfo = v1.NodeSystemInfo{
		MachineID: d.facts.MachineID, SystemUUID: d.facts.SystemUUID, BootID: d.facts.BootID, KernelVersion: d.facts.Kernel, OSImage: d.facts.OSImage,
		ContainerRuntimeVersion: d.about, KubeletVersion: b.Version.GitVersion, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	st.Conditions = append(b.Facts.Pressure(), d.readiness(b.Facts))
}

// readiness returns the node's condition Ready, with the time of its last transition.
func (d *description) readiness(f *Facts) v1.NodeCondition {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	c := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "the agent is ready", LastHeartbeatTime: now}
	for _, check := range []func() error{f.ShuttingDown, f.Healthy, f.StorageReady} {
		if err := check(); err != nil {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, "KubeletNotReady", err.Error()
			break
		}
	}
	c.LastTransitionTime = d.ready.LastTransitionTime
	if c.Status != d.ready.Status {
		c.LastTransitionTime = now
	}
	d.ready = c
	return c
}
