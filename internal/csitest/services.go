package csitest

import (
	"context"
	"os"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// GetPluginCapabilities implements the Identity service.
func (d *Driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	resp := &spec.GetPluginCapabilitiesResponse{}
	if d.cfg.Attaches {
		resp.Capabilities = []*spec.PluginCapability{{Type: &spec.PluginCapability_Service_{
			Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE},
		}}}
	}
	return resp, nil
}

// ControllerGetCapabilities implements the Controller service.
func (d *Driver) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	resp := &spec.ControllerGetCapabilitiesResponse{}
	if d.cfg.Attaches {
		resp.Capabilities = []*spec.ControllerServiceCapability{{Type: &spec.ControllerServiceCapability_Rpc{
			Rpc: &spec.ControllerServiceCapability_RPC{Type: spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME},
		}}}
	}
	return resp, nil
}

// NodeGetCapabilities returns the capabilities of the Config.
func (d *Driver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	resp := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range d.cfg.Capabilities {
		resp.Capabilities = append(resp.Capabilities, &spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{
			Rpc: &spec.NodeServiceCapability_RPC{Type: c},
		}})
	}
	return resp, nil
}

// NodeGetInfo returns the node ID and topology of the Config, and the volume limit.
func (d *Driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &spec.NodeGetInfoResponse{NodeId: d.cfg.NodeID, MaxVolumesPerNode: d.limit}
	if d.cfg.Topology != nil {
		resp.AccessibleTopology = &spec.Topology{Segments: d.cfg.Topology}
	}
	return resp, nil
}

func (d *Driver) can(c spec.NodeServiceCapability_RPC_Type) bool {
	return slices.Contains(d.cfg.Capabilities, c)
}

// NodeStageVolume mounts a volume at its staging path. For a block volume it attaches the device.
func (d *Driver) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.can(Stage) {
		return nil, status.Error(codes.Unimplemented, "the driver does not stage volumes")
	}
	if at := d.staged[r.GetVolumeId()]; at == r.GetStagingTargetPath() {
		return &spec.NodeStageVolumeResponse{}, nil
	} else if at != "" {
		d.violate("volume %s is staged at %s and then at %s", r.GetVolumeId(), at, r.GetStagingTargetPath())
	}
	if info, err := os.Lstat(r.GetStagingTargetPath()); err != nil || !info.IsDir() {
		return nil, status.Errorf(codes.Internal, "the staging path is not a directory: %v", err)
	}
	var err error
	switch block := r.GetVolumeCapability().GetBlock() != nil; {
	case !block && d.cfg.Mounter != nil:
		err = d.mount(ctx, r.GetVolumeId(), r.GetStagingTargetPath())
	case block && d.cfg.Disks != nil:
		_, err = d.cfg.Disks.Attach(ctx, r.GetVolumeId(), "")
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.staged[r.GetVolumeId()] = r.GetStagingTargetPath()
	return &spec.NodeStageVolumeResponse{}, nil
}

// mount mounts the file system of a volume: ext4 on a disk, or tmpfs without Config.Disks.
func (d *Driver) mount(ctx context.Context, volume, target string) error {
	fs := mount.FileSystem{Type: "tmpfs", Source: volume, Target: target}
	if d.cfg.Disks != nil {
		var err error
		fs.Type = "ext4"
		if fs.Source, err = d.cfg.Disks.Attach(ctx, volume, fs.Type); err != nil {
			return err
		}
	}
	return d.cfg.Mounter.Mount(ctx, fs)
}

// detach removes the device of a volume if the volume is neither staged nor published.
func (d *Driver) detach(volume string) error {
	if d.cfg.Disks == nil || d.staged[volume] != "" || len(d.published[volume]) > 0 {
		return nil
	}
	if err := d.cfg.Disks.Detach(volume); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// NodeUnstageVolume unmounts a volume from its staging path.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.published[r.GetVolumeId()]) > 0 {
		d.violate("volume %s is unstaged while it is published at %d paths", r.GetVolumeId(), len(d.published[r.GetVolumeId()]))
	}
	if d.cfg.Mounter != nil {
		if err := mount.UnmountAll(ctx, d.cfg.Mounter, r.GetStagingTargetPath(), mount.Plain); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	delete(d.staged, r.GetVolumeId())
	return &spec.NodeUnstageVolumeResponse{}, d.detach(r.GetVolumeId())
}

// NodePublishVolume creates the target and mounts the volume there.
func (d *Driver) NodePublishVolume(ctx context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, target := r.GetVolumeId(), r.GetTargetPath()
	if d.can(Stage) && r.GetStagingTargetPath() != "" && d.staged[id] != r.GetStagingTargetPath() {
		d.violate("volume %s is published without being staged at %s", id, r.GetStagingTargetPath())
		return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
	}
	how := proto.Clone(r).(*spec.NodePublishVolumeRequest)
	how.VolumeContext, how.Secrets = nil, nil // a later request may have new ones
	if was, ok := d.published[id][target]; ok {
		if was != how.String() {
			d.violate("volume %s is published at %s as %s and then as %s", id, target, was, how)
		}
		return &spec.NodePublishVolumeResponse{}, nil
	}
	if err := d.makeTarget(ctx, r); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if d.published[id] == nil {
		d.published[id] = map[string]string{}
	}
	d.published[id][target] = how.String()
	return &spec.NodePublishVolumeResponse{}, nil
}

func (d *Driver) makeTarget(ctx context.Context, r *spec.NodePublishVolumeRequest) error {
	target := r.GetTargetPath()
	if r.GetVolumeCapability().GetBlock() != nil {
		f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o600) //nolint:forbidigo // the test's own
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil || d.cfg.Disks == nil {
			return err
		}
		device, err := d.cfg.Disks.Attach(ctx, r.GetVolumeId(), "")
		if err != nil {
			return err
		}
		return d.cfg.Mounter.Bind(ctx, mount.Bind{Source: device, Target: target, ReadOnly: r.GetReadonly()})
	}
	if err := os.Mkdir(target, 0o750); err != nil && !os.IsExist(err) {
		return err
	}
	switch {
	case d.cfg.Mounter == nil:
		return nil
	case r.GetStagingTargetPath() != "":
		return d.cfg.Mounter.Bind(ctx, mount.Bind{Source: r.GetStagingTargetPath(), Target: target, ReadOnly: r.GetReadonly()})
	default:
		return d.mount(ctx, r.GetVolumeId(), target)
	}
}

// NodeUnpublishVolume unmounts and removes the target.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cfg.Mounter != nil {
		if err := mount.UnmountAll(ctx, d.cfg.Mounter, r.GetTargetPath(), mount.Plain); err != nil && !os.IsNotExist(err) {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	if err := os.Remove(r.GetTargetPath()); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	delete(d.published[r.GetVolumeId()], r.GetTargetPath())
	if len(d.published[r.GetVolumeId()]) == 0 {
		delete(d.published, r.GetVolumeId())
	}
	return &spec.NodeUnpublishVolumeResponse{}, d.detach(r.GetVolumeId())
}

// NodeGetVolumeStats returns the value of SetStats.
func (d *Driver) NodeGetVolumeStats(context.Context, *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.volume, nil
}

// NodeGetVolumeHealth returns the value of SetHealth.
func (d *Driver) NodeGetVolumeHealth(context.Context, *spec.NodeGetVolumeHealthRequest) (*spec.NodeGetVolumeHealthResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &spec.NodeGetVolumeHealthResponse{VolumeHealth: d.health}, nil
}

// NodeExpandVolume increases the disk of a volume to the required size.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	if !d.can(Expand) {
		return nil, status.Error(codes.Unimplemented, "the driver does not expand volumes")
	}
	if d.cfg.Disks != nil {
		if err := d.cfg.Disks.Grow(ctx, r.GetVolumeId(), r.GetCapacityRange().GetRequiredBytes()); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}
