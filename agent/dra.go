package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/pluginmgr"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// DRA gives pods the devices of their ResourceClaims. A *dra.Manager is one. Only
// methods with a ctx may wait for a driver.
type DRA interface {
	DRANode
	// Prepare makes a pod's claims ready, and Unprepare undoes that when its
	// containers have ended.
	Prepare(ctx context.Context, pod *v1.Pod) error
	Unprepare(ctx context.Context, uid types.UID) error
	// Attachment names the CDI devices of a container, and Health tells how
	// they are (KEP-4680).
	Attachment(pod *v1.Pod, container string) ([]string, error)
	Health(uid types.UID, container string) []v1.ResourceStatus
}

// DRANode is the part of DRA that is about the node as a whole.
type DRANode interface {
	// Restore is called before Run, with the containers that run by pod. Ready
	// is closed when drivers can register.
	Restore(running map[types.UID][]string) error
	Run(ctx context.Context) error
	Ready() <-chan struct{}
	// Retain unprepares, in the background, what pods have that nothing knows.
	Retain(known func(types.UID) bool)
	// Subscribe tells of pods whose driver came, or whose devices changed their
	// health.
	Subscribe(fn func(dra.Change)) (cancel func())
	Holdings(uid types.UID, container string) []dra.Holding
}

// Reasons of events about claims; the first is the kubelet's.
const (
	reasonPrepare   = "FailedPrepareDynamicResources"
	reasonUnprepare = "FailedUnprepareDynamicResources"
	reasonAwaits    = "WaitingForDynamicResources"
)

var errNoDRA = errors.New("this node does no dynamic resource allocation")

func hasClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// useDRA fits the DRA to what else the agent has.
func (a *Agent) useDRA() {
	c := &a.cfg
	if c.ManifestClaims != nil {
		c.ManifestClaims.pods.Store(a.pods)
	}
	if c.DRA != nil && c.Claims == nil {
		c.Claims = heldClaims{c.DRA}
	}
}

// claimHandlers adds who takes the drivers that are found by their sockets.
func (a *Agent) claimHandlers(handlers map[string][]pluginmgr.Handler) {
	if d, ok := a.cfg.DRA.(interface{ Registrar() dra.Registrar }); ok {
		handlers[pluginmgr.DRAPlugin] = append(handlers[pluginmgr.DRAPlugin], d.Registrar())
	}
}

// claimsReady waits until it is known who uses which claims.
func (a *Agent) claimsReady(ctx context.Context) error {
	if a.cfg.DRA == nil {
		return nil
	}
	select {
	case <-a.cfg.DRA.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runDRA runs the DRA until ctx ends, from the moment on when it is known which
// containers run.
func (a *Agent) runDRA(ctx context.Context) error {
	d := a.cfg.DRA
	if d == nil {
		return nil
	}
	if !a.untilListed(ctx) {
		return nil
	}
	if err := d.Restore(a.runningContainers()); err != nil {
		a.log.Error("which pods use which claims is not known in full", zap.Error(err))
	}
	defer d.Subscribe(func(c dra.Change) {
		for _, uid := range c.Pods {
			a.workers.Resync(uid)
		}
	})()
	return d.Run(ctx)
}

// prepareClaims makes the claims of a pod ready. It asks nobody if they are.
func (a *Agent) prepareClaims(ctx context.Context, pod *v1.Pod) error {
	if !hasClaims(pod) {
		return nil
	}
	err := errNoDRA
	if a.cfg.DRA != nil {
		if err = a.claimsReady(ctx); err == nil {
			err = a.cfg.DRA.Prepare(ctx, pod)
		}
	}
	if err == nil {
		return nil
	}
	var notYet *dra.NotYetError
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &notYet):
		a.events.Event(pod, v1.EventTypeNormal, reasonAwaits, err.Error())
	default:
		a.events.Event(pod, v1.EventTypeWarning, reasonPrepare, "Failed to prepare dynamic resources: "+err.Error())
	}
	return &reasonError{reasonPrepare, fmt.Errorf("prepare dynamic resources: %w", err)}
}

// unprepareClaims undoes that for a pod whose containers have ended.
func (a *Agent) unprepareClaims(ctx context.Context, pod *v1.Pod) error {
	if a.cfg.DRA == nil {
		return nil
	}
	err := a.claimsReady(ctx)
	if err == nil {
		err = a.cfg.DRA.Unprepare(ctx, pod.UID)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		a.events.Event(pod, v1.EventTypeWarning, reasonUnprepare, "Failed to unprepare dynamic resources: "+err.Error())
	}
	return &reasonError{reasonUnprepare, fmt.Errorf("unprepare dynamic resources: %w", err)}
}

// sweepClaims has the claims unprepared of pods that nothing knows.
func (a *Agent) sweepClaims(known map[types.UID]bool) {
	if a.cfg.DRA != nil {
		a.cfg.DRA.Retain(func(uid types.UID) bool { return known[uid] || a.wanted(uid) })
	}
}

// withClaims adds the devices of claims to what containers get.
func (a *Agent) withClaims(pod *v1.Pod, to map[string]podspec.Attachment) (map[string]podspec.Attachment, error) {
	if a.cfg.DRA == nil || !hasClaims(pod) {
		return to, nil
	}
	if to == nil {
		to = map[string]podspec.Attachment{}
	}
	for _, name := range containerNames(pod) {
		ids, err := a.cfg.DRA.Attachment(pod, name)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", name, err)
		}
		got := to[name]
		got.CDI = slices.Clone(got.CDI)
		for _, id := range ids {
			if !slices.Contains(got.CDI, id) {
				got.CDI = append(got.CDI, id)
			}
		}
		to[name] = got
	}
	return to, nil
}

// claimStatus begins the names under which the devices of claims stand in the
// status of a container (v1.ResourceStatus).
const claimStatus = "claim:"

// withClaimHealth adds how the devices of claims are to a status. Regular
// containers and sidecars show it.
func (a *Agent) withClaimHealth(pod *v1.Pod, st v1.PodStatus) v1.PodStatus {
	if a.cfg.DRA == nil || !hasClaims(pod) {
		return st
	}
	show := func(c *v1.ContainerStatus) {
		rest := slices.DeleteFunc(slices.Clone(c.AllocatedResourcesStatus), func(s v1.ResourceStatus) bool {
			return strings.HasPrefix(string(s.Name), claimStatus)
		})
		c.AllocatedResourcesStatus = append(rest, a.cfg.DRA.Health(pod.UID, c.Name)...)
	}
	for i := range st.ContainerStatuses {
		show(&st.ContainerStatuses[i])
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		for j := range st.InitContainerStatuses {
			if s := &st.InitContainerStatuses[j]; s.Name == c.Name && podmeta.IsSidecar(c) {
				show(s)
			}
		}
	}
	return st
}

// heldClaims tell the podresources API of claims.
type heldClaims struct{ d DRANode }

func (h heldClaims) Dynamic(pod *v1.Pod, container string) []*podresourcesapi.DynamicResource {
	var out []*podresourcesapi.DynamicResource
	for _, held := range h.d.Holdings(pod.UID, container) {
		r := &podresourcesapi.DynamicResource{ClaimName: held.Claim, ClaimNamespace: held.Namespace}
		for _, d := range held.Devices {
			c := &podresourcesapi.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Name}
			for _, id := range d.CDI {
				c.CdiDevices = append(c.CdiDevices, &podresourcesapi.CDIDevice{Name: id})
			}
			r.ClaimResources = append(r.ClaimResources, c)
		}
		out = append(out, r)
	}
	return out
}
