package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nodewright/nodewright/internal/diskusage"
)

// ControllerGetCapabilities returns the capabilities of the controller service.
func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	can := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH, csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	}
	if d.attach {
		can = append(can, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_PUBLISH_READONLY, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range can {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

// find returns the record of a volume, or NotFound.
func (d *driver) find(id string) (volume, error) {
	if err := required("volume_id", id); err != nil {
		return volume{}, err
	}
	v, ok := d.volumes.get(id)
	if !ok {
		return volume{}, status.Errorf(codes.NotFound, "there is no volume %q", id)
	}
	return v, nil
}

// take finds a volume like find, and reserves it for one call that changes it. Until release is
// called, other such calls fail.
func (d *driver) take(id string) (v volume, release func(), err error) {
	if err := required("volume_id", id); err != nil {
		return volume{}, nil, err
	}
	if release, err = d.hold(id); err != nil {
		return volume{}, nil, err
	}
	if v, err = d.find(id); err != nil {
		release()
		return volume{}, nil, err
	}
	return v, release, nil
}

func (d *driver) here() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{d.label(): d.node}}
}

// answer converts the record of a volume to the type of the CSI API.
func (d *driver) answer(v volume) *csi.Volume {
	out := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Bytes, AccessibleTopology: []*csi.Topology{d.here()}, VolumeContext: map[string]string{keyKind: kindDir}}
	if v.Disk {
		out.VolumeContext[keyKind] = kindDisk
	}
	switch {
	case v.FromSnapshot != "":
		out.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: v.FromSnapshot}}}
	case v.FromVolume != "":
		out.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.FromVolume}}}
	}
	return out
}

// CreateVolume creates a volume. Its content is a copy if the request names a
// volume or a snapshot.
func (d *driver) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	v, err := d.planned(req)
	if err != nil {
		return nil, err
	}
	hold := []string{v.ID}
	if source := v.FromVolume + v.FromSnapshot; source != "" && source != v.ID {
		hold = append(hold, source)
	}
	release, err := d.hold(hold...)
	if err != nil {
		return nil, err
	}
	defer release()
	if have, ok := d.volumes.get(v.ID); ok {
		if err := d.same(have, v, req.GetCapacityRange()); err != nil {
			return nil, err
		}
		return &csi.CreateVolumeResponse{Volume: d.answer(have)}, nil
	}
	if err := d.fill(ctx, &v, req.GetParameters()[keyKind] != ""); err != nil {
		return nil, err
	}
	d.say("created " + v.ID)
	return &csi.CreateVolumeResponse{Volume: d.answer(v)}, nil
}

// planned returns the record of the volume that a request describes.
func (d *driver) planned(req *csi.CreateVolumeRequest) (volume, error) {
	if err := required("name", req.GetName()); err != nil {
		return volume{}, err
	}
	disk, err := capabilities(req.GetVolumeCapabilities())
	if err != nil {
		return volume{}, err
	}
	if err := known("parameters", req.GetParameters(), keyKind); err != nil {
		return volume{}, err
	}
	if err := known("mutable_parameters", req.GetMutableParameters(), keyTier); err != nil {
		return volume{}, err
	}
	if disk, err = kind(req.GetParameters(), keyKind, disk); err != nil {
		return volume{}, err
	}
	v := volume{
		ID: digest("vol", req.GetName()), Name: req.GetName(), Disk: disk, Mutable: maps.Clone(req.GetMutableParameters()),
		FromVolume: req.GetVolumeContentSource().GetVolume().GetVolumeId(), FromSnapshot: req.GetVolumeContentSource().GetSnapshot().GetSnapshotId(),
	}
	if req.GetVolumeContentSource() != nil && v.FromVolume+v.FromSnapshot == "" {
		return volume{}, invalid("volume_content_source names neither a volume nor a snapshot")
	}
	if v.Bytes, err = sizeOf(req.GetCapacityRange(), disk); err != nil {
		return volume{}, err
	}
	requisite := req.GetAccessibilityRequirements().GetRequisite()
	if len(requisite) > 0 && !slices.ContainsFunc(requisite, func(t *csi.Topology) bool { return d.isHere(t) }) {
		return volume{}, status.Errorf(codes.ResourceExhausted, "accessibility_requirements: volumes are on node %s alone", d.node)
	}
	return v, nil
}

// isHere reports whether the segments of t include this node.
func (d *driver) isHere(t *csi.Topology) bool {
	for k, v := range t.GetSegments() {
		if k == d.label() && v != d.node {
			return false
		}
	}
	return true
}

// same returns an error if the existing volume does not satisfy the request for a volume of the
// same name.
func (d *driver) same(existing, requested volume, r *csi.CapacityRange) error {
	if existing.Bytes < r.GetRequiredBytes() || r.GetLimitBytes() != 0 && existing.Bytes > r.GetLimitBytes() ||
		existing.FromVolume != requested.FromVolume || existing.FromSnapshot != requested.FromSnapshot || requested.Disk && !existing.Disk || existing.Given {
		return status.Errorf(codes.AlreadyExists, "there is another volume with the name %q", requested.Name)
	}
	return nil
}

// fill creates the data of a new volume, and then its record. If fixed is true, the
// request has set the kind of the volume, which must then equal the kind of the source.
func (d *driver) fill(ctx context.Context, v *volume, fixed bool) error {
	from, size, sourceDisk := "", int64(0), false
	switch {
	case v.FromSnapshot != "":
		s, ok := d.snapshots.get(v.FromSnapshot)
		if !ok {
			return status.Errorf(codes.NotFound, "there is no snapshot %.128q", v.FromSnapshot)
		}
		from, size, sourceDisk, v.Format = s.ID, s.Bytes, s.Disk, s.Format
	case v.FromVolume != "":
		s, ok := d.volumes.get(v.FromVolume)
		if !ok {
			return status.Errorf(codes.NotFound, "there is no volume %.128q", v.FromVolume)
		}
		from, size, sourceDisk, v.Format = s.ID, s.Bytes, s.Disk, s.Format
	}
	if from != "" {
		if v.Disk != sourceDisk {
			if v.Disk || fixed {
				return invalid("volume_content_source: its volume is of another kind")
			}
			v.Disk = sourceDisk
		}
		if v.Bytes < size {
			return status.Errorf(codes.OutOfRange, "capacity_range: the source has %d bytes", size)
		}
	}
	if room := d.room(); v.Bytes > room {
		return status.Errorf(codes.ResourceExhausted, "capacity_range: there are %d bytes", room)
	}
	if err := d.removeData(v.ID); err != nil { // of a volume that was being deleted
		return err
	}
	err := d.make(ctx, *v, from)
	if err == nil {
		err = d.volumes.put(*v)
	}
	if err != nil {
		return errors.Join(err, d.removeData(v.ID))
	}
	return nil
}

func (d *driver) make(ctx context.Context, v volume, from string) error {
	path := d.data(v.ID)
	switch {
	case v.Disk && from == "":
		return makeImage(path, v.Bytes)
	case v.Disk:
		return d.quiet(from, func() error { return copyImage(ctx, d.data(from), path, v.Bytes) })
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if from != "" {
		return copyTree(ctx, d.data(from), path)
	}
	return os.Chmod(path, 0o777) // for pods of any user, until a pod has an fsGroup
}

// quiet calls copying. If the file system of the volume is mounted, it is frozen during the call,
// so that nothing is written to it.
func (d *driver) quiet(id string, copying func() error) (err error) {
	v, ok := d.volumes.get(id)
	if !ok || !v.Disk {
		return copying()
	}
	for _, path := range v.mounted() {
		if err := d.disks.freeze(path); err != nil {
			continue // it is not mounted, or a block device
		}
		defer func() { err = errors.Join(err, d.disks.thaw(path)) }()
		break
	}
	return copying()
}

// room returns how many more bytes volumes may use.
func (d *driver) room() int64 {
	if d.capacity > 0 {
		left := d.capacity
		for _, v := range d.volumes.all() {
			left -= v.Bytes
		}
		return max(0, left)
	}
	u, err := diskusage.Statfs(d.state)
	if err != nil {
		return 0
	}
	return max(0, u.Available)
}

// DeleteVolume deletes a volume that is not in use.
func (d *driver) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	v, release, err := d.take(req.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	if len(v.Attached) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached", v.ID)
	}
	if used, err := d.used(ctx, v); err != nil {
		return nil, err
	} else if used != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is mounted at %s", v.ID, used)
	}
	if err := d.forget(v); err != nil {
		return nil, err
	}
	d.say("deleted " + v.ID)
	return &csi.DeleteVolumeResponse{}, nil
}

// forget deletes a volume. It deletes the record first: after a crash, sweep deletes
// data without a record.
func (d *driver) forget(v volume) error {
	if err := d.volumes.remove(v.ID); err != nil {
		return err
	}
	return d.removeData(v.ID)
}

// ControllerPublishVolume records that the volume is attached to this node.
func (d *driver) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if !d.attach {
		return nil, status.Error(codes.Unimplemented, "volumes are not attached: the driver runs without --attach")
	}
	if err := required("node_id", req.GetNodeId()); err != nil {
		return nil, err
	}
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := capability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, release, err := d.take(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if req.GetNodeId() != d.node {
		return nil, status.Errorf(codes.NotFound, "there is no node %q", req.GetNodeId())
	}
	readOnly, have := v.Attached[d.node]
	if have && readOnly != req.GetReadonly() {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached with readonly %t", v.ID, readOnly)
	}
	if !have {
		if limit := d.maxVolumes; limit > 0 && d.attached() >= limit {
			return nil, status.Errorf(codes.ResourceExhausted, "%d volumes are attached to node %s", limit, d.node)
		}
		v.Attached = map[string]bool{d.node: req.GetReadonly()}
		if err := d.volumes.put(v); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{keyAttached: d.node}}, nil
}

func (d *driver) attached() (n int64) {
	for _, v := range d.volumes.all() {
		if _, ok := v.Attached[d.node]; ok {
			n++
		}
	}
	return n
}

// ControllerUnpublishVolume records that the volume is detached.
func (d *driver) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if !d.attach {
		return nil, status.Error(codes.Unimplemented, "volumes are not attached: the driver runs without --attach")
	}
	v, release, err := d.take(req.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	if _, have := v.Attached[d.node]; have && (req.GetNodeId() == "" || req.GetNodeId() == d.node) {
		v.Attached = nil
		if err := d.volumes.put(v); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ValidateVolumeCapabilities confirms the capabilities that the volume has.
func (d *driver) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume_capabilities are missing")
	}
	v, err := d.find(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if lacks := lacking(v, req.GetVolumeCapabilities()); lacks != "" {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: lacks}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	}}, nil
}

// lacking returns the reason why a volume cannot have the capabilities in list. It returns "" if
// it can.
func lacking(v volume, list []*csi.VolumeCapability) string {
	disk, err := capabilities(list)
	switch {
	case err != nil:
		return err.Error()
	case disk && !v.Disk:
		return fmt.Sprintf("volume %s is a directory", v.ID)
	}
	return ""
}

// page returns the part of a list for one request, and the token of the next part.
func page[T record[T]](all []T, prefix, token string, limit int32) (part []T, next string, err error) {
	if limit < 0 {
		return nil, "", invalid("max_entries %d: want 0 or more", limit)
	}
	if token != "" {
		if !isDigest(prefix, token) {
			return nil, "", status.Errorf(codes.Aborted, "starting_token %.64q is none of this driver's", token)
		}
		start := slices.IndexFunc(all, func(r T) bool { return r.id() > token })
		if start < 0 {
			return nil, "", nil
		}
		all = all[start:]
	}
	if limit == 0 || int(limit) >= len(all) {
		return all, "", nil
	}
	return all[:limit], all[limit-1].id(), nil
}

// ListVolumes lists the volumes that were created by name.
func (d *driver) ListVolumes(_ context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all := slices.DeleteFunc(d.volumes.all(), func(v volume) bool { return v.Given })
	part, next, err := page(all, "vol", req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range part {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{Volume: d.answer(v), Status: &csi.ListVolumesResponse_VolumeStatus{
			PublishedNodeIds: slices.Sorted(maps.Keys(v.Attached)),
		}})
	}
	return resp, nil
}

// ControllerGetVolume returns one volume.
func (d *driver) ControllerGetVolume(_ context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	v, err := d.find(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{Volume: d.answer(v), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{
		PublishedNodeIds: slices.Sorted(maps.Keys(v.Attached)),
	}}, nil
}

// ControllerGetVolumeHealth returns the health of a volume.
func (d *driver) ControllerGetVolumeHealth(_ context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := d.find(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: d.health(v)}, nil
}

// ControllerListVolumeHealth returns the volumes that are not healthy.
func (d *driver) ControllerListVolumeHealth(_ context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	ill := slices.DeleteFunc(d.volumes.all(), func(v volume) bool { return v.Given || len(d.health(v).GetHealthStatuses()) == 0 })
	part, next, err := page(ill, "vol", req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, v := range part {
		resp.Entries = append(resp.Entries, d.health(v))
	}
	return resp, nil
}

// health returns the health of a volume. The result has no entries if the volume is healthy.
func (d *driver) health(v volume) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: v.ID}
	add := func(kind csi.VolumeHealthErrorType, reason, message string) {
		h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: kind, Reason: reason, Message: message})
	}
	if d.sick != "" {
		if _, err := os.Lstat(d.sick); err == nil {
			add(csi.VolumeHealthErrorType_DEGRADED, "SaidToBeSick", "the file "+d.sick+" is there")
		}
	}
	if info, err := os.Lstat(d.data(v.ID)); err != nil || info.IsDir() == v.Disk {
		add(csi.VolumeHealthErrorType_DATA_LOSS, "DataGone", "the data of the volume are gone")
	}
	return h
}

// GetCapacity returns the free capacity, in bytes.
func (d *driver) GetCapacity(_ context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if t := req.GetAccessibleTopology(); t != nil && !d.isHere(t) {
		return &csi.GetCapacityResponse{}, nil
	}
	room := d.room()
	return &csi.GetCapacityResponse{AvailableCapacity: room, MaximumVolumeSize: wrapperspb.Int64(min(room, maxSize)), MinimumVolumeSize: wrapperspb.Int64(1)}, nil
}

// ControllerExpandVolume increases the size of a volume. NodeExpandVolume grows
// file systems and devices.
func (d *driver) ControllerExpandVolume(_ context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if r := req.GetCapacityRange(); r.GetRequiredBytes() == 0 && r.GetLimitBytes() == 0 {
		return nil, invalid("capacity_range is missing")
	}
	v, release, err := d.take(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	size, err := sizeOf(req.GetCapacityRange(), v.Disk)
	if err != nil {
		return nil, err
	}
	if most := req.GetCapacityRange().GetLimitBytes(); most != 0 && most < v.Bytes {
		return nil, status.Errorf(codes.OutOfRange, "capacity_range: volume %s has %d bytes", v.ID, v.Bytes)
	}
	if size > v.Bytes {
		if room := d.room(); size-v.Bytes > room {
			return nil, status.Errorf(codes.OutOfRange, "capacity_range: there are %d bytes", room)
		}
		v.Bytes = size
		if v.Disk {
			if err := os.Truncate(d.data(v.ID), size); err != nil {
				return nil, err
			}
		}
		if err := d.volumes.put(v); err != nil {
			return nil, err
		}
		d.say(fmt.Sprintf("expanded %s to %d bytes", v.ID, size))
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: v.Disk}, nil
}

// ControllerModifyVolume changes the mutable parameter.
func (d *driver) ControllerModifyVolume(_ context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	v, release, err := d.take(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := known("mutable_parameters", req.GetMutableParameters(), keyTier); err != nil {
		return nil, err
	}
	if v.Mutable == nil {
		v.Mutable = map[string]string{}
	}
	maps.Copy(v.Mutable, req.GetMutableParameters())
	if err := d.volumes.put(v); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
