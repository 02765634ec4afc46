package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/dra"
)

// draDriver has the devices of the claims; a pod with claim=1 has one of its own.
const draDriver = "gpu.example.com"

// driver is a DRA driver that outlives the agents. What it prepared does not
// outlast a loss of power.
type driver struct {
	m *machine

	mu       sync.Mutex
	boot     int
	prepared map[types.UID]bool // by the claim's UID, which is "claim-" and the pod's
}

func newDriver(m *machine) *driver { return &driver{m: m, prepared: map[types.UID]bool{}} }

func claimOf(uid types.UID) types.UID { return "claim-" + uid }

// bootID is that of this boot of the machine.
func (d *driver) bootID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("boot-%d", d.boot)
}

func (d *driver) losePower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boot++
	clear(d.prepared)
}

func (d *driver) has(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.prepared[claimOf(uid)]
}

// come registers the driver with a life of the agent.
func (d *driver) come(l *life) {
	for pause := 10 * time.Millisecond; l.offers.driver(draDriver, "1", driving{d, l}) != nil; pause = min(2*pause, time.Minute) {
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// driving is a driver as one life of the agent calls it.
type driving struct {
	d *driver
	l *life
}

var errDriver = errors.New("sim: the driver fails")

func (d driving) Prepare(_ context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
	out := map[types.UID]dra.Prepared{}
	for _, c := range list {
		if err := d.l.effect("Prepare", c.Name); err != nil {
			return nil, err
		}
		if d.d.m.fails("Prepare", c.Name) {
			return nil, errDriver
		}
		d.d.mu.Lock()
		d.d.prepared[c.UID] = true
		d.d.mu.Unlock()
		out[c.UID] = dra.Prepared{Devices: []dra.Device{{Pool: "n", Name: c.Name, CDI: []string{"v/c=" + c.Name}}}}
	}
	return out, nil
}

func (d driving) Unprepare(_ context.Context, list []dra.ClaimRef) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range list {
		if err := d.l.effect("Unprepare", c.Name); err != nil {
			return nil, err
		}
		if d.d.m.fails("Unprepare", c.Name) {
			return nil, errDriver
		}
		d.d.m.mu.Lock()
		for _, i := range d.d.m.made {
			if claimOf(i.uid) == c.UID && d.d.m.runs(i) {
				d.d.m.wrong("the claim of %s is given back while %s runs", d.d.m.pods[i.uid].object.Name, i.name)
			}
		}
		d.d.m.mu.Unlock()
		d.d.mu.Lock()
		delete(d.d.prepared, c.UID)
		d.d.mu.Unlock()
		out[c.UID] = nil
	}
	return out, nil
}

func (d driving) Watch(context.Context, func([]dra.DeviceHealth)) error { return dra.ErrNoHealth }
func (d driving) Close() error                                          { return nil }

// claim has a pod use a claim, in all of its containers.
func claim(o *v1.Pod) {
	name := o.Name
	o.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "mine", ResourceClaimName: &name}}
	for _, list := range [][]v1.Container{o.Spec.Containers, o.Spec.InitContainers} {
		for i := range list {
			list[i].Resources.Claims = []v1.ResourceClaim{{Name: "mine"}}
		}
	}
}

// claimFor is the object that the API server has for a pod with a claim.
func claimFor(o *v1.Pod) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: claimOf(o.UID)}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: draDriver, Pool: "n", Device: o.Name, Request: "r"}},
	}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: o.Name, UID: o.UID}}
	return c
}
