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

// Expansion of volumes. The decisions are functions of objects without side effects (expansion,
// resizing, resized, notResized); their rules are the kubelet's. Expand reads, calls the driver
// and writes.

// Claims reads PersistentVolumeClaims and updates the status of their expansion.
type Claims interface {
	// Get reads the current claim, which may be newer than the claim of an Expansion.
	Get(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	// UpdateStatus replaces the status of a claim, and returns the updated claim. It must return
	// an error if the claim has changed since it was read, because the controller writes the same
	// fields.
	UpdateStatus(ctx context.Context, claim *v1.PersistentVolumeClaim, status v1.PersistentVolumeClaimStatus) (*v1.PersistentVolumeClaim, error)
}

// expandNotRequired is the kubelet's annotation of a volume that was expanded on one node and
// needs nothing on the others.
const expandNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// expansion reports whether the node has to expand a volume, and to which size in bytes. local is
// the size, in bytes, with which the volume was mounted on this node.
//
// A controller expands the volume first, and then marks the claim for the node. The node skips an
// expansion that the controller has not finished or has found infeasible. A volume that several
// nodes use is expanded on each of them, once the claim shows the new size.
func expansion(pv *v1.PersistentVolume, claim *v1.PersistentVolumeClaim, local int64) (size int64, run bool) {
	const storage = v1.ResourceStorage
	size = pv.Spec.Capacity.Storage().Value()
	// A controller that can reduce a failed expansion (KEP-1790) sets this state in the claim. An
	// older controller sets a condition.
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
		// The first node has finished, and the claim shows the new size. Only this node knows
		// whether it has expanded the volume too.
		_, spared := pv.Annotations[expandNotRequired]
		return size, local > 0 && local < size && !spared
	}
	return size, false
}

// resizing returns the status of a claim whose volume the node is expanding.
func resizing(claim *v1.PersistentVolumeClaim) v1.PersistentVolumeClaimStatus {
	return withState(claim, v1.PersistentVolumeClaimNodeResizeInProgress)
}

// withState returns the status of a claim with another state for storage. The claim is shared and
// not modified.
func withState(claim *v1.PersistentVolumeClaim, state v1.ClaimResourceStatus) v1.PersistentVolumeClaimStatus {
	st := *claim.Status.DeepCopy()
	if st.AllocatedResourceStatuses == nil {
		st.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	st.AllocatedResourceStatuses[v1.ResourceStorage] = state
	return st
}

// resized returns the status of a claim whose volume has been expanded: it has the new capacity,
// and no state and no conditions of the expansion.
func resized(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) v1.PersistentVolumeClaimStatus {
	st := *claim.Status.DeepCopy()
	size := pv.Spec.Capacity[v1.ResourceStorage]
	// If there is a state, the allocated size counts, as in expansion.
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

// notResized returns the status of a claim whose expansion failed. If the size is infeasible, the
// claim has to request another size. If it already requests another one, the controller may
// continue, now that the infeasible size is given up (KEP-1790).
func notResized(claim *v1.PersistentVolumeClaim, size int64, err error) v1.PersistentVolumeClaimStatus {
	state := v1.PersistentVolumeClaimNodeResizeInProgress
	asked, ok := claim.Spec.Resources.Requests[v1.ResourceStorage]
	if infeasible(err) || ok && asked.Value() != size {
		state = v1.PersistentVolumeClaimNodeResizeInfeasible
	}
	st := withState(claim, state)
	// The error has no secrets; see CallError. An existing condition keeps its time.
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

// infeasible reports whether a driver's error means that the volume can never have the requested
// size. The codes are the kubelet's.
func infeasible(err error) bool {
	return is(err, codes.InvalidArgument) || is(err, codes.OutOfRange) || is(err, codes.NotFound)
}

// Expansion describes a volume of a pod that may have to be expanded. All objects are shared and
// read-only. Claim may be nil on a node without a cluster.
type Expansion struct {
	Pod   *v1.Pod
	Spec  *volumemgr.Spec
	Claim *v1.PersistentVolumeClaim
}

// Needed reports whether the volume is mounted for the pod, and its claim requires an expansion
// on this node. It reads only memory.
func (m *Manager) Needed(e Expansion) bool {
	_, run := m.needed(e)
	return run
}

// needed returns the size in bytes to which the volume has to be expanded, and whether to do it
// now.
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
	if m.cfg.Cluster == nil { // without a controller, the claim's status is not maintained
		size = e.Spec.PersistentVolume.Spec.Capacity.Storage().Value()
		return size, m.sizes[name] > 0 && m.sizes[name] < size
	}
	size, run = expansion(e.Spec.PersistentVolume, e.Claim, m.sizes[name])
	// Objects may be outdated: a claim from before the last expansion would cause an unnecessary
	// call.
	return size, run && m.grown[name] != size // this size was already reached
}

// Expand expands a volume if needed, and updates the status of its claim. It reads the claim
// again first. It reports whether it did anything. claims may be nil. Expand blocks for one call
// to the driver and three to the API server. After an error it may be called again. If the driver
// cannot expand a volume while it is in use, later calls skip that volume.
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
			return false, nil // another claim with the same name
		}
		e.Claim = live
	}
	// Checked again with the current claim, since the controller may have given up this size.
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
	// If the claim already shows the size, another node has expanded the volume.
	shown := e.Claim.Status.Capacity.Storage().Value() >= size
	if !shown && e.Claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizeInProgress {
		if err := note(resizing(e.Claim)); err != nil {
			return true, err
		}
	}
	// From now on, the claim shows that the node is expanding. After a crash the call is
	// repeated, which drivers must support.
	err := m.expand(ctx, e, size)
	v, _ := VolumeOf(e.Spec)
	name := unique(v.Driver, v.Handle)
	m.mu.Lock()
	switch {
	// Another node has expanded the volume, and this driver does not need the node's part (no
	// EXPAND_VOLUME).
	case err == nil, errors.Is(err, ErrUnsupported) && shown:
		m.sizes[name], err = size, nil
	case is(err, codes.FailedPrecondition): // not possible while the volume is in use
		m.refused[name] = true
	}
	m.mu.Unlock()
	var answer *CallError
	switch {
	case err == nil && !shown:
		err = note(resized(e.Claim, e.Spec.PersistentVolume))
	// Only a final error is a failure. Until then the claim stays in progress, since the call may
	// still be running.
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

// expand calls the driver, with the paths of this pod's publication. It waits for other calls
// about the volume.
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
		return fmt.Errorf("driver %s does not expand volumes on the node: %w", src.driver, ErrUnsupported)
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

// here records that a volume is mounted for a pod or, if mounted is false, that it is not mounted
// any more. In the second case s may be nil.
func (m *Manager) here(uid types.UID, s *volumemgr.Spec, name string, mounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !mounted {
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
		// A driver creates the file system in the volume's full size when it stages the volume.
		// So the size at the first mount is that of the object, and later mounts do not change
		// it.
		if name := unique(v.Driver, v.Handle); m.sizes[name] == 0 {
			m.sizes[name] = s.PersistentVolume.Spec.Capacity.Storage().Value()
		}
	}
}
