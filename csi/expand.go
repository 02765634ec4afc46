package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr"
)

// Expansion of volumes. The decisions are pure functions of objects (expansion,
// resizing, resized, notResized) with the kubelet's rules; Expand reads, calls the
// driver and writes.

// Claims reads PersistentVolumeClaims and updates the status of their expansion.
type Claims interface {
	// Get reads the current claim, which may be newer than an Expansion's.
	Get(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	// UpdateStatus replaces the status of a claim, and returns the updated claim.
	// If the claim has changed since it was read, it returns an error: the
	// controller writes the same fields.
	UpdateStatus(ctx context.Context, claim *v1.PersistentVolumeClaim, status v1.PersistentVolumeClaimStatus) (*v1.PersistentVolumeClaim, error)
}

// expandNotRequired is an annotation of volumes whose other nodes need not do
// anything (kubelet).
const expandNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// expansion returns whether the node has to expand a volume, and to which size in
// bytes. local is the size at which it was mounted on this node.
//
// A controller expands the volume first, and then marks the claim for the node. The
// node does not try an expansion that the controller has not finished or has found
// infeasible. A volume of several nodes is expanded on each of them, once the claim
// shows the new size.
func expansion(pv *v1.PersistentVolume, claim *v1.PersistentVolumeClaim, local int64) (size int64, run bool) {
	const storage = v1.ResourceStorage
	size = pv.Spec.Capacity.Storage().Value()
	// A controller that can give up a size (KEP-1790) marks the claim with this
	// state. An older one uses a condition.
	state, recovers := claim.Status.AllocatedResourceStatuses[storage]
	if recovers {
		if a, ok := claim.Status.AllocatedResources[storage]; ok {
			size = a.Value()
		}
		return size, state == v1.PersistentVolumeClaimNodeResizePending || state == v1.PersistentVolumeClaimNodeResizeInProgress
	}
	has := claim.Status.Capacity.Storage().Value()
	switch {
	case has < size:
		return size, slices.ContainsFunc(claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == v1.PersistentVolumeClaimFileSystemResizePending && c.Status == v1.ConditionTrue
		})
	case slices.Contains(pv.Spec.AccessModes, v1.ReadWriteMany):
		// The first node has finished, and the claim shows the new size. Only this
		// node knows whether it has expanded the volume, too.
		_, spared := pv.Annotations[expandNotRequired]
		return size, local > 0 && local < size && !spared
	}
	return size, false
}

// resizing returns the status of a claim whose volume the node is expanding, which
// the controller waits for.
func resizing(claim *v1.PersistentVolumeClaim) v1.PersistentVolumeClaimStatus {
	return withState(claim, v1.PersistentVolumeClaimNodeResizeInProgress)
}

// withState returns the status of a claim with another state for storage. The claim
// is shared and not changed.
func withState(claim *v1.PersistentVolumeClaim, state v1.ClaimResourceStatus) v1.PersistentVolumeClaimStatus {
	st := *claim.Status.DeepCopy()
	if st.AllocatedResourceStatuses == nil {
		st.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	st.AllocatedResourceStatuses[v1.ResourceStorage] = state
	return st
}

// resized is the status of a claim whose volume has its size: the new capacity, and
// neither a state nor conditions of the growth.
func resized(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) v1.PersistentVolumeClaimStatus {
	st := *claim.Status.DeepCopy()
	size := pv.Spec.Capacity[v1.ResourceStorage]
	// With a state the allocated size counts, as in expansion.
	if a, ok := st.AllocatedResources[v1.ResourceStorage]; ok && claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != "" {
		size = a
	}
	if st.Capacity == nil {
		st.Capacity = v1.ResourceList{}
	}
	st.Capacity[v1.ResourceStorage] = size.DeepCopy()
	delete(st.AllocatedResourceStatuses, v1.ResourceStorage)
	if len(st.AllocatedResourceStatuses) == 0 {
		st.AllocatedResourceStatuses = nil
	}
	st.Conditions = slices.DeleteFunc(st.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		switch c.Type {
		case v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing,
			v1.PersistentVolumeClaimNodeResizeError, v1.PersistentVolumeClaimControllerResizeError:
			return true
		}
		return false
	})
	return st
}

// notResized returns the status of a claim whose expansion failed. If the size is
// infeasible, the claim has to request another one; if it already does, the
// controller may continue only after this size is given up (KEP-1790).
func notResized(claim *v1.PersistentVolumeClaim, size int64, err error) v1.PersistentVolumeClaimStatus {
	state := v1.PersistentVolumeClaimNodeResizeInProgress
	asked, ok := claim.Spec.Resources.Requests[v1.ResourceStorage]
	if infeasible(err) || ok && asked.Value() != size {
		state = v1.PersistentVolumeClaimNodeResizeInfeasible
	}
	st := withState(claim, state)
	// The error has no secrets any more, see CallError. A condition that is there
	// already keeps its time.
	c := v1.PersistentVolumeClaimCondition{Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, Message: err.Error()}
	at := slices.IndexFunc(st.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError
	})
	if at < 0 {
		st.Conditions = append(st.Conditions, c)
	} else {
		c.LastTransitionTime = st.Conditions[at].LastTransitionTime
		st.Conditions[at] = c
	}
	return st
}

// infeasible reports whether a driver's error means that the volume can never have
// the size. The codes are the kubelet's.
func infeasible(err error) bool {
	return is(err, codes.InvalidArgument) || is(err, codes.OutOfRange) || is(err, codes.NotFound)
}

// Expansion is a volume of a pod that may have to be expanded. All objects are
// shared and read-only; Claim may be nil on a node without a cluster.
type Expansion struct {
	Pod   *v1.Pod
	Spec  *volumemgr.Spec
	Claim *v1.PersistentVolumeClaim
}

// Needed reports whether the volume is mounted for the pod and its claim in e
// demands an expansion on this node. It reads only memory.
func (m *Manager) Needed(e Expansion) bool {
	_, run := m.needed(e)
	return run
}

// needed returns the size in bytes to which the volume has to be expanded, and
// whether to do so now.
func (m *Manager) needed(e Expansion) (size int64, run bool) {
	v, ok := VolumeOf(e.Spec)
	if !ok || e.Spec.ReadOnly {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := unique(v.Driver, v.Handle)
	if !m.present[e.Pod.UID][e.Spec.Name()] || m.refused[name] {
		return 0, false
	}
	if m.cfg.Cluster == nil { // no controller keeps the claim's status
		size = e.Spec.PersistentVolume.Spec.Capacity.Storage().Value()
		return size, m.sizes[name] > 0 && m.sizes[name] < size
	}
	size, run = expansion(e.Spec.PersistentVolume, e.Claim, m.sizes[name])
	// Objects arrive late: a claim from before the last success would cause a
	// needless call.
	return size, run && m.grown[name] != size // the claim is older than the last success
}

// Expand expands a volume if needed, and updates the status of its claim; claims
// may be nil. It reads the claim again first. It reports whether it did anything.
// It blocks for a call to the driver and three to the server. After an error it may
// be called again. A volume that the driver cannot expand in use is skipped from
// then on.
func (m *Manager) Expand(ctx context.Context, e Expansion, claims Claims) (bool, error) {
	if !m.Needed(e) {
		return false, nil
	}
	if claims == nil || m.cfg.Cluster == nil {
		claims = nil
	} else {
		live, err := claims.Get(ctx, e.Claim.Namespace, e.Claim.Name)
		if err != nil {
			return true, fmt.Errorf("claim %s/%s: %w", e.Claim.Namespace, e.Claim.Name, err)
		}
		if live.UID != e.Claim.UID {
			return false, nil // another of that name
		}
		e.Claim = live
	}
	// Checked again with the current claim: the controller may have given the size
	// up.
	size, run := m.needed(e)
	if !run {
		return false, nil
	}
	note := func(st v1.PersistentVolumeClaimStatus) error {
		if claims == nil {
			return nil
		}
		claim, err := claims.UpdateStatus(ctx, e.Claim, st)
		if err != nil {
			return fmt.Errorf("claim %s/%s: %w", e.Claim.Namespace, e.Claim.Name, err)
		}
		e.Claim = claim
		return nil
	}
	// A volume whose claim shows the size already was made larger elsewhere.
	shown := e.Claim.Status.Capacity.Storage().Value() >= size
	if !shown && e.Claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizeInProgress {
		if err := note(resizing(e.Claim)); err != nil {
			return true, err
		}
	}
	// From here on the claim shows that the node is expanding: after a crash the
	// call is repeated, which drivers have to expect.
	err := m.expand(ctx, e, size)
	v, _ := VolumeOf(e.Spec)
	name := unique(v.Driver, v.Handle)
	m.mu.Lock()
	switch {
	// A driver without EXPAND_VOLUME on a node that is not the first: the volume has
	// its size without the node's part.
	case err == nil, errors.Is(err, ErrUnsupported) && shown:
		m.sizes[name], err = size, nil
	case is(err, codes.FailedPrecondition): // not while it is in use
		m.refused[name] = true
	}
	m.mu.Unlock()
	var answer *CallError
	switch {
	case err == nil && !shown:
		err = note(resized(e.Claim, e.Spec.PersistentVolume))
	// A call that may still run has not failed yet: the claim stays in progress.
	case err != nil && errors.As(err, &answer) && answer.Final() && !shown:
		err = errors.Join(err, note(notResized(e.Claim, size, err)))
	}
	if err == nil {
		m.mu.Lock()
		m.grown[name] = size
		m.mu.Unlock()
	}
	return true, err
}

// expand is the call to the driver, with the paths of this pod's publication. It is
// in line with other calls about the volume.
func (m *Manager) expand(ctx context.Context, e Expansion, size int64) error {
	if size < 0 {
		return fmt.Errorf("the new size is %d bytes; want 0 or more", size)
	}
	src, err := sourceOf(e.Spec, e.Pod, e.Pod.UID)
	if err != nil {
		return err
	}
	d, release, err := m.hold(src.driver)
	if err != nil {
		return transient(err)
	}
	defer release()
	if !d.can.expand {
		return fmt.Errorf("driver %s makes no volume larger on a node: %w", src.driver, ErrUnsupported)
	}
	secrets, err := m.secrets(ctx, src.expand, "nodeExpandSecretRef")
	if err != nil {
		return err
	}
	name := e.Spec.Name()
	req := &spec.NodeExpandVolumeRequest{
		VolumeId: src.handle, CapacityRange: &spec.CapacityRange{RequiredBytes: size}, Secrets: secrets,
		VolumePath:       filepath.Join(m.cfg.Root, "pods", string(e.Pod.UID), "volumes", "kubernetes.io~csi", name, mountName),
		VolumeCapability: src.capability(d.can, "", ""),
	}
	if src.block {
		req.VolumePath = m.podFile(name, string(e.Pod.UID))
	}
	if d.can.stage {
		_, req.StagingTargetPath = m.staging(src, name)
	}
	return m.call(ctx, d, src.handle, "NodeExpandVolume", req, &spec.NodeExpandVolumeResponse{}, secrets)
}

// here records whether a volume is mounted for a pod. If is is false, s may be nil.
func (m *Manager) here(uid types.UID, s *volumemgr.Spec, name string, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !is {
		delete(m.present[uid], name)
		if len(m.present[uid]) == 0 {
			delete(m.present, uid)
		}
		return
	}
	if m.present[uid] == nil {
		m.present[uid] = map[string]bool{}
	}
	m.present[uid][name] = true
	if v, ok := VolumeOf(s); ok {
		// Drivers create the file system at the size of the volume when they stage
		// it, so that the size at the first mount is the size of the object. Later
		// mounts do not change it.
		if name := unique(v.Driver, v.Handle); m.sizes[name] == 0 {
			m.sizes[name] = s.PersistentVolume.Spec.Capacity.Storage().Value()
		}
	}
}
