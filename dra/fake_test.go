package dra_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/internal/testrun"
)

const gpu = "gpu.example.com"

var errBroken = errors.New("disk is broken")

// claims are the claims of the API server, in namespace default.
type claims struct {
	mu    sync.Mutex
	all   map[string]*resourceapi.ResourceClaim
	asked []string
	hang  bool
}

func (c *claims) Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	c.mu.Lock()
	c.asked = append(c.asked, name)
	got, hang := c.all[name], c.hang
	c.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if got == nil || namespace != "default" {
		return nil, fmt.Errorf("resourceclaim %s/%s not found", namespace, name)
	}
	return got, nil
}

func (c *claims) put(list ...*resourceapi.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]*resourceapi.ResourceClaim{}
	}
	for _, rc := range list {
		c.all[rc.Name] = rc
	}
}

// claim is one that is allocated: "a" or "a=gpu.example.com,nic.example.com", and
// reserved for some pods.
func claim(what string, pods ...string) *resourceapi.ResourceClaim {
	name, drivers, some := strings.Cut(what, "=")
	if !some {
		drivers = gpu
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for d := range strings.SplitSeq(drivers, ",") {
		if d != "" {
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{Driver: d, Pool: "node", Device: "d-" + name, Request: "r"})
		}
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p, UID: types.UID(p)})
	}
	return c
}

// pod uses claims in its container main; its UID is its name.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	main := v1.Container{Name: "main"}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: "my-" + c, ResourceClaimName: &c})
		main.Resources.Claims = append(main.Resources.Claims, v1.ResourceClaim{Name: "my-" + c})
	}
	p.Spec.Containers = append(p.Spec.Containers, main)
	return p
}

// driver is one in memory. It checks that it is used as promised: no two calls
// for a claim at a time.
type driver struct {
	t    *testing.T
	name string

	mu        sync.Mutex
	calls     []string
	busy      map[types.UID]string
	prepared  map[types.UID]bool
	prepare   func(ctx context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error)
	unprepare func(ctx context.Context, list []dra.ClaimRef) (map[types.UID]error, error)
	health    chan []dra.DeviceHealth
	noHealth  bool
	watches   int
	closed    int
}

func newDriver(t *testing.T, name string) *driver {
	return &driver{t: t, name: name, busy: map[types.UID]string{}, prepared: map[types.UID]bool{}, health: make(chan []dra.DeviceHealth)}
}

func (d *driver) begin(what string, list []dra.ClaimRef) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
		if other := d.busy[c.UID]; other != "" {
			d.t.Errorf("%s of %s while there is a %s under way", what, c.Name, other)
		}
		d.busy[c.UID] = what
	}
	slices.Sort(names)
	d.calls = append(d.calls, what+" "+strings.Join(names, ","))
}

func (d *driver) end(list []dra.ClaimRef, done func(dra.ClaimRef)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range list {
		delete(d.busy, c.UID)
		done(c)
	}
}

// devices returns the devices that the driver gives to a claim.
func (d *driver) devices(c dra.ClaimRef) []dra.Device {
	return []dra.Device{{Pool: "node", Name: "d-" + c.Name, Requests: []string{"r"}, CDI: []string{d.name + "/dev=" + c.Name}}}
}

func (d *driver) Prepare(ctx context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
	d.begin("prepare", list)
	out, err := map[types.UID]dra.Prepared{}, error(nil)
	if d.prepare != nil {
		out, err = d.prepare(ctx, list)
	} else {
		for _, c := range list {
			out[c.UID] = dra.Prepared{Devices: d.devices(c)}
		}
	}
	d.end(list, func(c dra.ClaimRef) {
		if got, ok := out[c.UID]; ok && got.Err == nil && err == nil {
			d.prepared[c.UID] = true
		}
	})
	return out, err
}

func (d *driver) Unprepare(ctx context.Context, list []dra.ClaimRef) (map[types.UID]error, error) {
	d.begin("unprepare", list)
	out, err := map[types.UID]error{}, error(nil)
	if d.unprepare != nil {
		out, err = d.unprepare(ctx, list)
	} else {
		for _, c := range list {
			out[c.UID] = nil
		}
	}
	d.end(list, func(c dra.ClaimRef) {
		if got, ok := out[c.UID]; ok && got == nil && err == nil {
			delete(d.prepared, c.UID)
		}
	})
	return out, err
}

func (d *driver) Watch(ctx context.Context, report func([]dra.DeviceHealth)) error {
	d.mu.Lock()
	d.watches++
	no := d.noHealth
	d.mu.Unlock()
	if no {
		return dra.ErrNoHealth
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case list := <-d.health:
			if list == nil {
				return dra.ErrAway
			}
			report(list)
		}
	}
}

func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed++
	return nil
}

// called returns the calls since it was last asked, joined, in order.
func (d *driver) called() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := strings.Join(d.calls, "; ")
	d.calls = nil
	return s
}

// rig is a manager with its surroundings.
type rig struct {
	*dra.Manager
	t      *testing.T
	cfg    dra.Config
	store  *checkpointtest.Disk
	claims *claims
	gpu    *driver
	tries  int // of Restore that it takes; 0 is 1
	stop   func()
}

// newRig starts a manager with the driver gpu.
func newRig(t *testing.T) *rig {
	r := &rig{t: t, store: &checkpointtest.Disk{}, claims: &claims{}, gpu: newDriver(t, gpu)}
	r.cfg = dra.Config{Store: r.store, Claims: r.claims, Boot: "1"}
	r.start(nil)
	r.offer(r.gpu)
	return r
}

func (r *rig) offer(d *driver) {
	r.t.Helper()
	if err := r.Offer(d.name, "1", d); err != nil {
		r.t.Fatal(err)
	}
}

// start starts a life of the agent; pods of running run.
func (r *rig) start(running map[types.UID][]string) {
	r.t.Helper()
	m, err := dra.New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	for n := r.tries; n > 1; n-- {
		if err := m.Restore(running); err == nil {
			r.t.Error("Restore of what could not be read succeeded")
		}
	}
	if err := m.Restore(running); err != nil {
		r.t.Fatal(err)
	}
	r.Manager, r.stop = m, testrun.Start(r.t, m.Run)
	<-m.Ready()
}

// restart ends the agent and starts it again, with its drivers.
func (r *rig) restart(running map[types.UID][]string, drivers ...*driver) {
	r.t.Helper()
	r.stop()
	r.start(running)
	for _, d := range drivers {
		r.offer(d)
	}
}

func (r *rig) prepare(p *v1.Pod) {
	r.t.Helper()
	if err := r.Prepare(r.t.Context(), p); err != nil {
		r.t.Errorf("prepare %s: %v", p.Name, err)
	}
}

func (r *rig) unprepare(uid types.UID) {
	r.t.Helper()
	if err := r.Unprepare(r.t.Context(), uid); err != nil {
		r.t.Errorf("unprepare %s: %v", uid, err)
	}
}

func (r *rig) called(want string) {
	r.t.Helper()
	if got := r.gpu.called(); got != want {
		r.t.Errorf("driver heard %q, want %q", got, want)
	}
}

// fails checks that an error has some words.
func fails(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want one with %q", err, w)
		}
	}
}
