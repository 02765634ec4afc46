package csi

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/usage"
)

// Measure asks the driver how full the volume is, if it can say; else the file
// system. What a driver says of itself must make sense: negative numbers count as
// not known.
func (p Plugin) Measure(ctx context.Context, v *volumemgr.Volume) (volumemgr.Usage, error) {
	m := p.m
	target := filepath.Join(v.Path, mountName)
	src, err := sourceOf(v.Spec, v.Pod, v.UID)
	if err != nil {
		return volumemgr.Usage{}, err
	}
	d, release, err := m.hold(src.driver)
	if err != nil || !d.can.stats {
		if err == nil {
			release()
		}
		return m.statfs(ctx, target)
	}
	defer release()
	req := &spec.NodeGetVolumeStatsRequest{VolumeId: src.handle, VolumePath: target}
	if d.can.stage && !src.ephemeral {
		req.StagingTargetPath = m.stagingDir(src.driver, src.handle)
	}
	var resp spec.NodeGetVolumeStatsResponse
	if err := d.client.invoke(ctx, statsTimeout, nodeService, "NodeGetVolumeStats", req, &resp, nil); err != nil {
		return volumemgr.Usage{}, err
	}
	u := usageOf(&resp, time.Now())
	if c := resp.GetVolumeCondition(); d.can.condition && c != nil {
		m.condition(v, src, c.GetAbnormal(), brief(c.GetMessage()))
		u.Abnormal = new(c.GetAbnormal())
	}
	return u, nil
}

// statfs asks the file system, which may not answer.
func (m *Manager) statfs(ctx context.Context, path string) (volumemgr.Usage, error) {
	return m.usages.Do(ctx, path, func() (volumemgr.Usage, error) { return usage.Statfs(path) })
}

// usageOf reads an answer.
func usageOf(resp *spec.NodeGetVolumeStatsResponse, now time.Time) volumemgr.Usage {
	u := usage.Unknown()
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
	return u
}

// quiet forgets what was noted of a pod's volume for people.
func (m *Manager) quiet(v *volumemgr.Volume) {
	m.waitsFor(v.UID, v.Name, "")
	m.here(v.UID, nil, v.Name, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ill, string(v.UID)+"/"+v.Name)
}

// condition warns of a volume in an abnormal condition, once for each message.
func (m *Manager) condition(v *volumemgr.Volume, src source, abnormal bool, text string) {
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
