package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func shown(s snapshot) *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: s.ID, SourceVolumeId: s.Source, SizeBytes: s.Bytes, CreationTime: timestamppb.New(s.Created), ReadyToUse: true}
}

// CreateSnapshot creates a snapshot: a copy of a volume.
func (d *driver) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := required("name", req.GetName()); err != nil {
		return nil, err
	}
	if err := required("source_volume_id", req.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	if err := known("parameters", req.GetParameters()); err != nil {
		return nil, err
	}
	s := snapshot{ID: digest("snap", req.GetName()), Name: req.GetName(), Source: req.GetSourceVolumeId(), Created: time.Now().UTC()}
	release, err := d.hold(s.ID, s.Source)
	if err != nil {
		return nil, err
	}
	defer release()
	if have, ok := d.snapshots.get(s.ID); ok {
		if have.Source != s.Source {
			return nil, status.Errorf(codes.AlreadyExists, "there is a snapshot %q of another volume", s.Name)
		}
		return &csi.CreateSnapshotResponse{Snapshot: shown(have)}, nil
	}
	v, err := d.find(s.Source)
	if err != nil {
		return nil, err
	}
	s.Disk, s.Format, s.Bytes = v.Disk, v.Format, v.Bytes
	if err := d.removeData(s.ID); err != nil {
		return nil, err
	}
	if v.Disk {
		err = d.quiet(v.ID, func() error { return copyImage(ctx, d.data(v.ID), d.data(s.ID), v.Bytes) })
	} else if err = os.Mkdir(d.data(s.ID), 0o700); err == nil {
		err = copyTree(ctx, d.data(v.ID), d.data(s.ID))
	}
	if err == nil {
		err = d.snapshots.put(s)
	}
	if err != nil {
		return nil, errors.Join(err, d.removeData(s.ID))
	}
	d.say("created " + s.ID)
	return &csi.CreateSnapshotResponse{Snapshot: shown(s)}, nil
}

// DeleteSnapshot deletes a snapshot.
func (d *driver) DeleteSnapshot(_ context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	id := req.GetSnapshotId()
	if err := required("snapshot_id", id); err != nil {
		return nil, err
	}
	release, err := d.hold(id)
	if err != nil {
		return nil, err
	}
	defer release()
	if _, ok := d.snapshots.get(id); !ok {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err := d.snapshots.remove(id); err != nil {
		return nil, err
	}
	if err := d.removeData(id); err != nil {
		return nil, err
	}
	d.say("deleted " + id)
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots returns all snapshots, the snapshot with an ID, or the snapshots of a
// volume.
func (d *driver) ListSnapshots(_ context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	all := slices.DeleteFunc(d.snapshots.all(), func(s snapshot) bool {
		id, source := req.GetSnapshotId(), req.GetSourceVolumeId()
		return id != "" && s.ID != id || source != "" && s.Source != source
	})
	part, next, err := page(all, "snap", req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range part {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: shown(s)})
	}
	return resp, nil
}
