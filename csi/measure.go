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

// maxIllnesses is how many entries of a volume's health are told.
const maxIllnesses = 4

// Measure asks the driver how full the volume is, if it can say; else the file
// system. What a driver says of itself must make sense: negative numbers count as not
// known. On the way it is asked for the volume's health (CSIVolumeHealth), and a pod
// is warned of what is wrong. It blocks no longer than ctx, and does not wait for
// other calls about the volume: the calls change nothing.
func (p Plugin) Measure(ctx context.Context, v *volumemgr.Volume) (volumemgr.Usage, error) {
	m := p.m
	target := filepath.Join(v.Path, mountName)
	src, err := sourceOf(v.Spec, v.Pod, v.UID)
	if err != nil {
		return volumemgr.Usage{}, err
	}
	d, release, err := m.hold(src.driver)
	// A volume can be measured while its driver is away.
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
		// A file system that hangs must not keep the connection of a driver that has
		// deregistered.
		release() // the file system may not answer
		return m.statfs(ctx, target)
	}
	req := &spec.NodeGetVolumeStatsRequest{VolumeId: src.handle, VolumePath: target, StagingTargetPath: staging}
	var resp spec.NodeGetVolumeStatsResponse
	if err := d.client.invoke(ctx, statsTimeout, nodeService, "NodeGetVolumeStats", req, &resp, nil); err != nil {
		return volumemgr.Usage{}, err
	}
	return usageOf(&resp, time.Now()), nil
}

// statfs asks the file system, which may not answer: it returns when ctx ends, and a
// path has one such call at a time.
func (m *Manager) statfs(ctx context.Context, path string) (volumemgr.Usage, error) {
	return m.usages.Do(ctx, path, func() (volumemgr.Usage, error) {
		u, err := diskusage.Statfs(path)
		return volumemgr.Usage(u), err
	})
}

// usageOf reads an answer. Bytes and inodes that it does not have are unknown, which
// is -1; of several entries with one unit the last counts.
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

// quiet forgets what was noted of a pod's volume. It is called at the begin of its
// tear-down, after which nobody asks.
func (m *Manager) quiet(v *volumemgr.Volume) {
	m.waitsFor(v.UID, v.Name, "")
	m.here(v.UID, nil, v.Name, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ill, string(v.UID)+"/"+v.Name)
}

// examine asks the driver for the health of a volume and warns of it, once for each
// answer. Without an answer, what was known before stays. A volume that is well again
// and then ill is warned of anew.
func (m *Manager) examine(ctx context.Context, d *driver, v *volumemgr.Volume, src source, target, staging string) {
	req := &spec.NodeGetVolumeHealthRequest{VolumeId: src.handle, VolumePublishPath: target, StagingTargetPath: staging}
	var resp spec.NodeGetVolumeHealthResponse
	if err := d.client.invoke(ctx, statsTimeout, nodeService, "NodeGetVolumeHealth", req, &resp, nil); err != nil {
		return
	}
	text := illness(resp.GetVolumeHealth())
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

// illness is what a driver says of a volume that is not well, in a line; empty for
// one that is. The specification has unknown kinds of trouble ignored. Entries are
// sorted, so that another order is no news.
func illness(h *spec.VolumeHealth) string {
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
