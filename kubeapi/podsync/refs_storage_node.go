package podsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// Annotations of the Node and the CSINode, the kubelet's.
const (
	annotationNodeID   = "csi.volume.kubernetes.io/nodeid"
	annotationMigrated = "storage.alpha.kubernetes.io/migrated-plugins"
)

// Apply writes drivers to the node's objects: first to the Node, then to the CSINode. In this
// order the scheduler does not use a driver whose labels the Node lacks. Drivers are removed in
// the opposite order.
func (s *Storage) Apply(ctx context.Context, installed []plugins.CSINodeDriver, removed []string) error {
	k := kubeapi.Key{Name: s.cfg.NodeName}
	node := &v1.Node{}
	if err := s.cfg.Client.Get(ctx, kubeapi.Nodes, k, node); err != nil {
		return fmt.Errorf("get Node %s: %w", s.cfg.NodeName, err)
	}
	patch, bad, err := nodePatch(node, installed, nil)
	if err != nil {
		return err
	}
	// A driver whose labels contradict those of the Node is skipped; other drivers are not
	// affected.
	fine := slices.DeleteFunc(slices.Clone(installed), func(d plugins.CSINodeDriver) bool { return bad[d.Name] != nil })
	if err := s.patchNode(ctx, k, patch); err != nil {
		return err
	}
	if err := s.applyCSINode(ctx, k, node, fine, removed); err != nil {
		return err
	}
	if len(removed) > 0 {
		if err := s.cfg.Client.Get(ctx, kubeapi.Nodes, k, node); err != nil {
			return fmt.Errorf("get Node %s: %w", s.cfg.NodeName, err)
		}
		if patch, _, err = nodePatch(node, fine, removed); err != nil {
			return err
		}
		if err := s.patchNode(ctx, k, patch); err != nil {
			return err
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		errs = append(errs, bad[name])
	}
	return errors.Join(errs...)
}

func (s *Storage) patchNode(ctx context.Context, k kubeapi.Key, patch []byte) error {
	if patch == nil {
		return nil
	}
	// The patch uses the status subresource, which a node may write, and which accepts labels and
	// annotations.
	if err := s.cfg.Client.Patch(ctx, kubeapi.Nodes, k, types.StrategicMergePatchType, patch, nil, "status"); err != nil {
		return fmt.Errorf("patch Node %s: %w", k.Name, err)
	}
	return nil
}

// nodePatch returns the patch that adds and removes drivers in a Node, or nil if nothing changes.
// bad has an error for each driver that needs a label which the Node has with another value.
func nodePatch(node *v1.Node, installed []plugins.CSINodeDriver, removed []string) (patch []byte, bad map[string]error, err error) {
	ids := map[string]string{}
	text := node.Annotations[annotationNodeID]
	if text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil || ids == nil {
			return nil, nil, fmt.Errorf("node %s: annotation %s is %.100q; want a JSON object of strings", node.Name, annotationNodeID, text)
		}
	}
	labels := map[string]string{}
	has := maps.Clone(node.Labels)
	if has == nil {
		has = map[string]string{}
	}
	bad = map[string]error{}
	for _, d := range installed {
		if d.NodeID == "" {
			bad[d.Name] = fmt.Errorf("driver %s returned no node ID", d.Name)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
			if v, ok := has[key]; ok && v != d.Topology[key] {
				bad[d.Name] = fmt.Errorf("driver %s: topology label %s: the driver has %q, the node has %q", d.Name, key, d.Topology[key], v)
			}
		}
		if bad[d.Name] != nil {
			continue
		}
		ids[d.Name] = d.NodeID
		for key, v := range d.Topology {
			if _, ok := has[key]; !ok {
				labels[key], has[key] = v, v
			}
		}
	}
	for _, name := range removed {
		delete(ids, name)
	}
	meta := map[string]any{}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	b, err := json.Marshal(ids)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(ids) == 0 && text != "":
		meta["annotations"] = map[string]any{annotationNodeID: nil}
	case len(ids) > 0 && string(b) != text:
		meta["annotations"] = map[string]any{annotationNodeID: string(b)}
	}
	if len(meta) == 0 {
		return nil, bad, nil
	}
	patch, err = json.Marshal(map[string]any{"metadata": meta})
	return patch, bad, err
}

// applyCSINode updates the drivers of the CSINode. It is created if it does not
// exist, and replaced if it belongs to another Node of this name.
func (s *Storage) applyCSINode(ctx context.Context, k kubeapi.Key, node *v1.Node, installed []plugins.CSINodeDriver, removed []string) error {
	o := &storagev1.CSINode{}
	err := s.cfg.Client.Get(ctx, kubeapi.CSINodes, k, o)
	if apierrors.IsNotFound(err) {
		return s.makeCSINode(ctx, k, node, installed)
	}
	if err != nil {
		return fmt.Errorf("get CSINode %s: %w", k.Name, err)
	}
	if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" && r.UID != node.UID }) {
		if err := s.cfg.Client.Delete(ctx, kubeapi.CSINodes, k, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}}); err != nil {
			return fmt.Errorf("delete CSINode %s of another Node: %w", k.Name, err)
		}
		return fmt.Errorf("CSINode %s belongs to another node of this name; replacing it", k.Name)
	}
	gone, patch := csiNodePatch(o, installed, removed, strings.Join(s.cfg.Migrated, ","))
	for _, p := range []map[string]any{gone, patch} {
		if p == nil {
			continue
		}
		b, err := json.Marshal(p)
		if err == nil {
			err = s.cfg.Client.Patch(ctx, kubeapi.CSINodes, k, types.StrategicMergePatchType, b, nil)
		}
		if err != nil {
			return fmt.Errorf("patch CSINode %s: %w", k.Name, err)
		}
	}
	return nil
}

func (s *Storage) makeCSINode(ctx context.Context, k kubeapi.Key, node *v1.Node, installed []plugins.CSINodeDriver) error {
	o := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: k.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}
	o.Spec.Drivers = []storagev1.CSINodeDriver{} // it is required
	if len(s.cfg.Migrated) > 0 {
		o.Annotations = map[string]string{annotationMigrated: strings.Join(s.cfg.Migrated, ",")}
	}
	for _, d := range installed {
		o.Spec.Drivers = append(o.Spec.Drivers, refsEntry(d))
	}
	if err := s.cfg.Client.Create(ctx, kubeapi.CSINodes, k, o, nil); err != nil {
		return fmt.Errorf("create CSINode %s: %w", k.Name, err)
	}
	return nil
}

// refsEntry returns the entry of a driver in the CSINode.
func refsEntry(d plugins.CSINodeDriver) storagev1.CSINodeDriver {
	e := storagev1.CSINodeDriver{Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology))}
	if d.Limit > 0 {
		e.Allocatable = &storagev1.VolumeNodeResources{Count: &d.Limit}
	}
	return e
}

// csiNodePatch returns the patches that update the drivers of a CSINode, or nil if there are
// none. An entry with another node ID or other labels cannot be changed: it is removed (gone) and
// added again (patch).
func csiNodePatch(o *storagev1.CSINode, installed []plugins.CSINodeDriver, removed []string, migrated string) (gone, patch map[string]any) {
	has := map[string]storagev1.CSINodeDriver{}
	for _, d := range o.Spec.Drivers {
		has[d.Name] = d
	}
	var out, in []any
	remove := func(name string) { out = append(out, map[string]any{"name": name, "$patch": "delete"}) }
	for _, name := range removed {
		if _, ok := has[name]; ok {
			remove(name)
		}
	}
	for _, d := range installed {
		want, old := refsEntry(d), has[d.Name]
		slices.Sort(old.TopologyKeys)
		same := old.NodeID == want.NodeID && slices.Equal(old.TopologyKeys, want.TopologyKeys)
		switch {
		case same && count(old) == count(want):
		case old.Name != "" && same:
			in = append(in, map[string]any{"name": d.Name, "allocatable": want.Allocatable})
		default:
			if old.Name != "" {
				remove(d.Name)
			}
			in = append(in, want)
		}
	}
	if len(out) > 0 {
		gone = map[string]any{"spec": map[string]any{"drivers": out}}
	}
	if len(in) > 0 {
		patch = map[string]any{"spec": map[string]any{"drivers": in}}
	}
	if o.Annotations[annotationMigrated] != migrated {
		if patch == nil {
			patch = map[string]any{}
		}
		patch["metadata"] = map[string]any{"annotations": map[string]any{annotationMigrated: migrated}}
	}
	return gone, patch
}

// count returns the volume limit of an entry, or 0 if it has none.
func count(d storagev1.CSINodeDriver) int32 {
	if d.Allocatable == nil || d.Allocatable.Count == nil {
		return 0
	}
	return *d.Allocatable.Count
}

// Claims reads and patches claims: it implements
// [github.com/nodewright/nodewright/csi.Claims].
type Claims struct{ s *Storage }

// Claims returns the Claims of this Storage.
func (s *Storage) Claims() Claims { return Claims{s} }

// Get reads a claim.
func (c Claims) Get(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	err := c.s.cfg.Client.Get(ctx, kubeapi.PersistentVolumeClaims, kubeapi.Key{Namespace: namespace, Name: name}, claim)
	return claim, err
}

// UpdateStatus replaces the status of a claim, if it has not changed since it was
// read, and returns the result.
func (c Claims) UpdateStatus(ctx context.Context, claim *v1.PersistentVolumeClaim, status v1.PersistentVolumeClaimStatus) (*v1.PersistentVolumeClaim, error) {
	patch, err := claimPatch(claim, status)
	if err != nil || patch == nil {
		return claim, err
	}
	k, now := kubeapi.Key{Namespace: claim.Namespace, Name: claim.Name}, &v1.PersistentVolumeClaim{}
	err = c.s.cfg.Client.Patch(ctx, kubeapi.PersistentVolumeClaims, k, types.MergePatchType, patch, now, "status")
	return now, err
}

// claimPatch returns a merge patch with the fields that differ.
func claimPatch(claim *v1.PersistentVolumeClaim, status v1.PersistentVolumeClaimStatus) ([]byte, error) {
	fields := func(st v1.PersistentVolumeClaimStatus) (out map[string]json.RawMessage, err error) {
		b, err := json.Marshal(st)
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		return out, err
	}
	was, err := fields(claim.Status)
	if err != nil {
		return nil, err
	}
	is, err := fields(status)
	if err != nil {
		return nil, err
	}
	diff := map[string]any{}
	for name, v := range is {
		if string(was[name]) != string(v) {
			diff[name] = v
		}
	}
	for name, v := range was {
		now, ok := is[name]
		if !ok {
			diff[name] = nil
			continue
		}
		// A merge patch removes a key of a map by the value null.
		var a, b map[string]any
		if json.Unmarshal(v, &a) == nil && json.Unmarshal(now, &b) == nil && diff[name] != nil {
			for key := range a {
				if _, still := b[key]; !still {
					b[key] = nil
				}
			}
			diff[name] = b
		}
	}
	if len(diff) == 0 {
		return nil, nil
	}
	meta := map[string]any{}
	if claim.ResourceVersion != "" {
		meta["resourceVersion"] = claim.ResourceVersion
	}
	if claim.UID != "" {
		meta["uid"] = claim.UID
	}
	return json.Marshal(map[string]any{"metadata": meta, "status": diff})
}
