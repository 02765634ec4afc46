package csi

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/volumemgr"
)

// maxIllnesses limits the health entries of a volume that an event lists.
const maxIllnesses = 4

// Measure returns the usage of the volume, from the driver if it has the capability, and
// otherwise from the file system. Negative numbers of a driver mean unknown. It also reads the
// volume's health from the driver (CSIVolumeHealth). If the health is abnormal, it sends a
// warning event about the pod. It returns at the end of ctx at the latest. It changes nothing, so
// it does not wait for other calls for the volume.
func (p Plugin) Measure(ctx context.Context, v *volumemgr.Volume) (volumemgr.Usage, error) {
	m := p.m
	target := filepath.Join(v.Path, mountName)
	src, err := sourceOf(v.Spec, v.Pod, v.UID)
	if err != nil {
		return volumemgr.Usage{}, err
	}
	d, release, err := m.hold(src.driver)
	// Without its driver, the volume can still be measured by its file system.
	if err != nil {
		return m.statfs(ctx, target)
	}
	release = sync.OnceFunc(release)
	defer release()
	staging := ""
	if d.can.stage && !src.ephemeral {
		staging = m.stagingDir(src.driver, src.handle)
	}
	if d.can.health {
		m.examine(ctx, d, v, src, target, staging)
	}
	if !d.can.stats {
		// The file system may hang, which must not keep open the connection of a driver that has
		// deregistered.
		release() // before the file system is accessed
		return m.statfs(ctx, target)
	}
	req := &spec.NodeGetVolumeStatsRequest{VolumeId: src.handle, VolumePath: target, StagingTargetPath: staging}
	var resp spec.NodeGetVolumeStatsResponse
	if err := d.client.invoke(ctx, statsTimeout, nodeService, "NodeGetVolumeStats", req, &resp, nil); err != nil {
		return volumemgr.Usage{}, err
	}
	return usageOf(&resp, time.Now()), nil
}

// statfs reads the usage of a file system, which may hang. It returns when ctx ends. For each
// path it makes one call at a time.
func (m *Manager) statfs(ctx context.Context, path string) (volumemgr.Usage, error) {
	return m.usages.Do(ctx, path, func() (volumemgr.Usage, error) {
		u, err := diskusage.Statfs(path)
		return volumemgr.Usage(u), err
	})
}

// usageOf returns the usage in an answer. Missing bytes or inodes are -1. If several entries have
// the same unit, the last one counts.
func usageOf(resp *spec.NodeGetVolumeStatsResponse, now time.Time) volumemgr.Usage {
	u := diskusage.Unknown()
	u.At = now
	known := func(n int64) int64 { return max(n, -1) }
	for _, x := range resp.GetUsage() {
		switch x.GetUnit() {
		case spec.VolumeUsage_BYTES:
			u.Capacity, u.Used, u.Available = known(x.GetTotal()), known(x.GetUsed()), known(x.GetAvailable())
		case spec.VolumeUsage_INODES:
			u.Inodes, u.InodesUsed, u.InodesFree = known(x.GetTotal()), known(x.GetUsed()), known(x.GetAvailable())
		}
	}
	return volumemgr.Usage(u)
}

// quiet removes the health entry of a pod's volume when its teardown begins.
func (m *Manager) quiet(v *volumemgr.Volume) {
	m.waitsFor(v.UID, v.Name, "")
	m.here(v.UID, nil, v.Name, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ill, string(v.UID)+"/"+v.Name)
}

// examine reads the health of a volume from the driver, and sends one warning event for each
// different answer. Without an answer, the last one is kept. A volume that recovers and becomes
// abnormal again causes another event.
func (m *Manager) examine(ctx context.Context, d *driver, v *volumemgr.Volume, src source, target, staging string) {
	req := &spec.NodeGetVolumeHealthRequest{VolumeId: src.handle, VolumePublishPath: target, StagingTargetPath: staging}
	var resp spec.NodeGetVolumeHealthResponse
	if err := d.client.invoke(ctx, statsTimeout, nodeService, "NodeGetVolumeHealth", req, &resp, nil); err != nil {
		return
	}
	text := abnormalHealth(resp.GetVolumeHealth())
	abnormal := text != ""
	key := string(v.UID) + "/" + v.Name
	m.mu.Lock()
	was := m.ill[key]
	if abnormal {
		m.ill[key] = text
	} else {
		delete(m.ill, key)
	}
	m.mu.Unlock()
	if abnormal && was != text {
		v.Warn("VolumeConditionAbnormal", fmt.Sprintf("Volume %s: driver %s says: %s", v.Name, src.driver, text))
	}
}

// abnormalHealth describes the abnormal health of a volume in one line. It returns "" if the volume
// is healthy. Unknown kinds are ignored, as the specification requires. Entries are sorted, so that
// their order does not matter.
func abnormalHealth(h *spec.VolumeHealth) string {
	var out []string
	for _, e := range h.GetHealthStatuses() {
		kind := ""
		switch e.GetStatus() {
		case spec.VolumeHealthErrorType_DEGRADED:
			kind = "degraded"
		case spec.VolumeHealthErrorType_INACCESSIBLE:
			kind = "inaccessible"
		case spec.VolumeHealthErrorType_DATA_LOSS:
			kind = "data loss"
		default:
			continue
		}
		line := kind + " (" + brief(e.GetReason()) + ")"
		if e.GetMessage() != "" {
			line += ": " + brief(e.GetMessage())
		}
		if out = append(out, line); len(out) == maxIllnesses {
			break
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
