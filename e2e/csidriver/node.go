package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/fsgroup"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// NodeGetCapabilities returns the capabilities of the node service.
func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	can := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.mountGroup {
		can = append(can, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range can {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

// NodeGetInfo returns the ID and the topology of the node.
func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: d.maxVolumes, AccessibleTopology: d.here()}, nil
}

// used returns a path at which the volume is mounted. It returns "" if the volume is not mounted.
func (d *driver) used(ctx context.Context, v volume) (string, error) {
	for _, path := range v.mounted() {
		found, err := mount.Find(ctx, d.mounter, path)
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return path, nil
		}
	}
	return "", nil
}

// NodeStageVolume mounts a volume once for the node. For a block device it only
// makes the device.
func (d *driver) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := path("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := capability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	release, err := d.hold(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := d.given(ctx, req.GetVolumeId(), req.GetVolumeContext(), req.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	if err := d.isAttached(v, req.GetPublishContext()); err != nil {
		return nil, err
	}
	want := stage{Path: req.GetStagingTargetPath(), Block: req.GetVolumeCapability().GetBlock() != nil, Type: req.GetVolumeCapability().GetMount().GetFsType()}
	if have := v.Staged; have != nil && *have != want {
		if used, err := d.used(ctx, v); err != nil {
			return nil, err
		} else if used != "" || have.Path == want.Path && have.Block != want.Block {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s is staged at %s, or otherwise", v.ID, have.Path)
		}
	}
	if (want.Block || want.Type != "") && !v.Disk {
		return nil, invalid("volume %s is a directory, and neither a block device nor an %s", v.ID, ext4)
	}
	v.Staged = &want
	if err := d.volumes.put(v); err != nil {
		return nil, err
	}
	if want.Block {
		if _, err := d.disks.attach(d.data(v.ID)); err != nil {
			return nil, err
		}
		if v.Format != ext4 && v.Format != raw {
			v.Format = raw
			if err := d.volumes.put(v); err != nil {
				return nil, err
			}
		}
	} else if err := d.mount(ctx, &v, want.Path, req.GetVolumeCapability().GetMount(), false); err != nil {
		return nil, err
	}
	d.say("staged " + v.ID)
	return &csi.NodeStageVolumeResponse{}, nil
}

// given returns a volume. If the volume does not exist and its attributes have the key
// create, it creates the volume.
func (d *driver) given(ctx context.Context, id string, attributes map[string]string, c *csi.VolumeCapability) (volume, error) {
	v, err := d.find(id)
	if status.Code(err) != codes.NotFound || attributes[keyCreate] == "" {
		return v, err
	}
	v, err = d.adopt(ctx, id, attributes, c, keyCreate)
	return v, err
}

// adopt creates a volume with an ID that the caller has chosen.
func (d *driver) adopt(ctx context.Context, id string, attributes map[string]string, c *csi.VolumeCapability, key string) (volume, error) {
	if !validID(id) || isDigest("vol", id) || isDigest("snap", id) {
		return volume{}, invalid("volume_id %q: want lower-case letters, digits, '-' and '.'", id)
	}
	if err := known("volume_context", attributes, keyKind, keyCreate, keySize); err != nil {
		return volume{}, err
	}
	disk, err := capabilities([]*csi.VolumeCapability{c})
	if err != nil {
		return volume{}, err
	}
	v := volume{ID: id, Name: id, Given: true, Ephemeral: key == keyKind}
	if v.Disk, err = kind(attributes, key, disk); err != nil {
		return volume{}, err
	}
	if v.Bytes, err = attributeSize(attributes, v.Disk); err != nil {
		return volume{}, err
	}
	return v, d.fill(ctx, &v, true)
}

// isAttached returns an error unless the volume is attached and publishContext is the
// one that was returned when it was attached.
func (d *driver) isAttached(v volume, publishContext map[string]string) error {
	if !d.attach {
		return nil
	}
	if _, ok := v.Attached[d.node]; !ok || publishContext[keyAttached] != d.node {
		return status.Errorf(codes.FailedPrecondition, "volume %s is not attached to node %s, or publish_context is not what that has returned", v.ID, d.node)
	}
	return nil
}

// mount mounts the volume's file system, or its directory, unless it is mounted.
func (d *driver) mount(ctx context.Context, v *volume, target string, c *csi.VolumeCapability_MountVolume, readOnly bool) error {
	gid, err := group(c.GetVolumeMountGroup())
	if err != nil {
		return err
	}
	found, err := mount.Find(ctx, d.mounter, target)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		if v.Disk {
			err = d.mountDisk(ctx, v, target, c.GetMountFlags(), readOnly)
		} else {
			err = d.mounter.Bind(ctx, mount.Bind{Source: d.data(v.ID), Target: target, Options: c.GetMountFlags(), ReadOnly: readOnly})
		}
		if err != nil {
			return err
		}
	}
	if gid == nil || !d.mountGroup || readOnly {
		return nil
	}
	return fsgroup.Apply(ctx, fsgroup.Request{Root: target, GID: *gid, OnRootMismatch: true})
}

func (d *driver) mountDisk(ctx context.Context, v *volume, target string, flags []string, readOnly bool) error {
	device, err := d.disks.attach(d.data(v.ID))
	if err != nil {
		return err
	}
	head, err := beginning(d.data(v.ID))
	if err != nil {
		return err
	}
	if v.Format == raw {
		if v.Format = formatIn(head); v.Format == raw {
			return status.Errorf(codes.FailedPrecondition, "volume %s holds something else than %s", v.ID, ext4)
		}
	}
	if v.Format == "" {
		if err := d.disks.format(ctx, device); err != nil {
			return err
		}
		v.Format = ext4
	} else if has := sizeIn(head); has > 0 && has+slack < v.Bytes && !readOnly { // it was expanded, or copied to a larger one
		if err := errors.Join(d.disks.grow(d.data(v.ID)), d.disks.fit(ctx, device)); err != nil {
			return err
		}
	}
	if err := d.volumes.put(*v); err != nil {
		return err
	}
	options := slices.Clone(flags)
	if readOnly {
		options = append(options, "ro")
	}
	return d.mounter.Mount(ctx, mount.FileSystem{Type: ext4, Source: device, Target: target, Options: mount.Join(options)})
}

// slack is the largest difference, in bytes, between the sizes of a device and of its file system
// at which the file system is not expanded. ext4 may leave the last blocks unused.
const slack = 1 << 20

// NodeUnstageVolume undoes NodeStageVolume.
func (d *driver) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := path("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	v, release, err := d.take(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if v.Staged == nil || v.Staged.Path != req.GetStagingTargetPath() {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	if !v.Staged.Block {
		if err := d.clean(ctx, v.Staged.Path); err != nil {
			return nil, err
		}
	}
	if v.Disk {
		if err := d.disks.detach(d.data(v.ID)); err != nil {
			return nil, err
		}
	}
	v.Staged = nil
	if err := d.volumes.put(v); err != nil {
		return nil, err
	}
	d.say("unstaged " + v.ID)
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// clean unmounts the volume at path. The directory belongs to the caller and stays.
func (d *driver) clean(ctx context.Context, path string) error {
	found, err := mount.Find(ctx, d.mounter, path)
	if err != nil {
		return err
	}
	for range found {
		if err := d.mounter.Unmount(ctx, path, mount.Plain); err != nil && !errors.Is(err, mount.ErrNotMounted) {
			return err
		}
	}
	return nil
}

// NodePublishVolume mounts a volume at the path for a pod.
func (d *driver) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := path("target_path", req.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := capability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	release, err := d.hold(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	inline := req.GetVolumeContext()[keyEphemeral] == "true"
	v, err := d.find(req.GetVolumeId())
	if inline && status.Code(err) == codes.NotFound {
		v, err = d.adopt(ctx, req.GetVolumeId(), req.GetVolumeContext(), req.GetVolumeCapability(), keyKind)
	}
	if err != nil {
		return nil, err
	}
	readOnly, err := d.mayPublish(v, req, inline)
	if err != nil {
		return nil, err
	}
	if v.Targets == nil {
		v.Targets = map[string]bool{}
	}
	v.Targets[req.GetTargetPath()] = readOnly
	if err := d.volumes.put(v); err != nil {
		return nil, err
	}
	switch c := req.GetVolumeCapability(); {
	case v.Ephemeral:
		err = d.mount(ctx, &v, req.GetTargetPath(), c.GetMount(), readOnly)
	case c.GetBlock() != nil:
		err = d.publishDevice(ctx, v, req.GetTargetPath(), readOnly)
	default:
		err = d.publishDir(ctx, v, req.GetTargetPath(), c.GetMount(), readOnly)
	}
	if err != nil {
		return nil, err
	}
	d.say("published " + v.ID)
	return &csi.NodePublishVolumeResponse{}, nil
}

// mayPublish returns an error if the request cannot be fulfilled for the volume.
// Otherwise it returns whether the volume has to be mounted read-only.
func (d *driver) mayPublish(v volume, req *csi.NodePublishVolumeRequest, inline bool) (readOnly bool, err error) {
	c := req.GetVolumeCapability()
	mode := c.GetAccessMode().GetMode()
	readOnly = req.GetReadonly() || mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY || mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	if v.Ephemeral != inline {
		return false, invalid("volume %s is an inline volume: %t", v.ID, v.Ephemeral)
	}
	if inline && c.GetBlock() != nil {
		return false, invalid("inline volumes are no block devices")
	}
	was, published := v.Targets[req.GetTargetPath()]
	others := len(v.Targets)
	if published {
		others--
	}
	switch {
	case published && was != readOnly:
		return false, status.Errorf(codes.AlreadyExists, "volume %s is published there with readonly %t", v.ID, was)
	case others > 0 && mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		return false, status.Errorf(codes.FailedPrecondition, "volume %s is published elsewhere, and for a single writer", v.ID)
	case others >= maxTargets:
		return false, status.Errorf(codes.ResourceExhausted, "volume %s is published %d times", v.ID, others)
	case inline:
		return readOnly, nil
	case req.GetStagingTargetPath() == "":
		return false, status.Error(codes.FailedPrecondition, "staging_target_path is missing")
	case v.Staged == nil || v.Staged.Path != req.GetStagingTargetPath():
		return false, status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %.200q", v.ID, req.GetStagingTargetPath())
	case v.Staged.Block != (c.GetBlock() != nil):
		return false, status.Errorf(codes.AlreadyExists, "volume %s is staged with another access type", v.ID)
	}
	return readOnly, d.isAttached(v, req.GetPublishContext())
}

func (d *driver) publishDir(ctx context.Context, v volume, target string, c *csi.VolumeCapability_MountVolume, readOnly bool) error {
	staged, err := mount.Find(ctx, d.mounter, v.Staged.Path)
	if err != nil {
		return err
	}
	if len(staged) == 0 { // the node has started anew
		return status.Errorf(codes.FailedPrecondition, "volume %s is not mounted at %s", v.ID, v.Staged.Path)
	}
	found, err := mount.Find(ctx, d.mounter, target)
	if err != nil || len(found) > 0 {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	var options []string
	if !v.Disk { // mount flags of a disk belong to its file system
		options = c.GetMountFlags()
	}
	return d.mounter.Bind(ctx, mount.Bind{Source: v.Staged.Path, Target: target, ReadOnly: readOnly, Options: options})
}

func (d *driver) publishDevice(ctx context.Context, v volume, target string, readOnly bool) error {
	device, err := d.disks.attach(d.data(v.ID))
	if err != nil {
		return err
	}
	found, err := mount.Find(ctx, d.mounter, target)
	if err != nil || len(found) > 0 {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	} else if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	return d.mounter.Bind(ctx, mount.Bind{Source: device, Target: target, ReadOnly: readOnly})
}

// NodeUnpublishVolume undoes NodePublishVolume.
func (d *driver) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	target := req.GetTargetPath()
	if err := path("target_path", target); err != nil {
		return nil, err
	}
	v, release, err := d.take(req.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.NodeUnpublishVolumeResponse{}, nil // of an inline volume it is done
	}
	if err != nil {
		return nil, err
	}
	defer release()
	if _, ok := v.Targets[target]; !ok {
		return &csi.NodeUnpublishVolumeResponse{}, nil
	}
	if err := mount.Clean(ctx, d.mounter, target, mount.Plain); err != nil {
		return nil, err
	}
	delete(v.Targets, target)
	if v.Ephemeral && len(v.Targets) == 0 {
		err = d.forget(v)
	} else {
		err = d.volumes.put(v)
	}
	if err != nil {
		return nil, err
	}
	d.say("unpublished " + v.ID)
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// at returns an error unless the volume is staged or published at this path.
func (d *driver) at(v volume, field, value string) error {
	if value == "" {
		return invalid("%s is missing", field)
	}
	if _, ok := v.Targets[value]; ok || v.Staged != nil && v.Staged.Path == value {
		return nil
	}
	return status.Errorf(codes.NotFound, "volume %s is not at %.200q", v.ID, value)
}

// NodeExpandVolume grows the device and its file system to the size of the volume.
func (d *driver) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetVolumePath() == "" {
		return nil, invalid("volume_path is missing")
	}
	v, release, err := d.take(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.at(v, "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	if least := req.GetCapacityRange().GetRequiredBytes(); least > v.Bytes {
		return nil, status.Errorf(codes.OutOfRange, "capacity_range: volume %s has %d bytes", v.ID, v.Bytes)
	}
	if v.Disk {
		if err := d.disks.grow(d.data(v.ID)); err != nil {
			return nil, err
		}
		for _, path := range v.mounted() {
			found, err := mount.Find(ctx, d.mounter, path)
			if err != nil {
				return nil, err
			}
			if len(found) == 0 || found[len(found)-1].Type != ext4 {
				continue
			}
			err = d.disks.growFS(path, v.Bytes)
			if errors.Is(err, fs.ErrPermission) {
				return nil, status.Errorf(codes.FailedPrecondition, "volume %s grows when it is staged again: without CAP_SYS_RESOURCE it does not while it is mounted: %v", v.ID, err)
			}
			if err != nil {
				return nil, err
			}
			break
		}
	}
	d.say(fmt.Sprintf("expanded %s on the node", v.ID))
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
}

// NodeGetVolumeHealth returns the health of a volume.
func (d *driver) NodeGetVolumeHealth(_ context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := d.find(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if path := req.GetVolumePublishPath(); path != "" {
		if err := d.at(v, "volume_publish_path", path); err != nil {
			return nil, err
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: d.health(v)}, nil
}

// NodeGetVolumeStats returns the usage of a volume in bytes and inodes.
func (d *driver) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetVolumePath() == "" {
		return nil, invalid("volume_path is missing")
	}
	v, err := d.find(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := d.at(v, "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	resp := &csi.NodeGetVolumeStatsResponse{}
	if v.Staged != nil && v.Staged.Block {
		resp.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.Bytes}}
		return resp, nil
	}
	var u diskusage.Usage
	if v.Disk {
		u, err = diskusage.Statfs(req.GetVolumePath())
	} else {
		var s diskusage.Survey
		u, err = s.Walk(ctx, d.data(v.ID), diskusage.Limits{})
		u.Capacity, u.Available = v.Bytes, max(0, v.Bytes-u.Used)
	}
	if err != nil {
		return nil, err
	}
	resp.Usage = []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: u.Capacity, Used: u.Used, Available: u.Available},
		{Unit: csi.VolumeUsage_INODES, Total: u.Inodes, Used: u.InodesUsed, Available: u.InodesFree},
	}
	return resp, nil
}
