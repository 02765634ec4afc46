package devicemgr

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nodewright/nodewright/internal/kubeletsum"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/wirecount"
	"github.com/nodewright/nodewright/numa"
)

// Taking over a node from a kubelet, and back. Pods keep their devices: allocations are read
// from, and written to, the checkpoint of the kubelet's device manager.

const (
	// kubeletFile is the kubelet's checkpoint, in the directory of the sockets.
	kubeletFile = "kubelet_internal_checkpoint"
	// maxKubeletFile is the largest file that is read, in bytes.
	maxKubeletFile = 16 << 20
	// kubeletKey is the key under which the store has a checksum: that of the kubelet's checkpoint
	// as this agent last wrote it.
	kubeletKey = "kubelet"
	// nowhere is the kubelet's node number for devices that are near no node.
	nowhere = -1
)

// kubeletFormat is the JSON of the kubelet's checkpoint.
type kubeletFormat struct {
	Data     kubeletData
	Checksum uint64
}

// kubeletData is the part of the file that the checksum covers.
type kubeletData struct {
	PodDeviceEntries  []kubeletEntry
	RegisteredDevices map[string][]string // IDs of healthy devices, by resource
}

// kubeletEntry has the devices of one resource that one container has. A device near several
// nodes is listed under each of them.
type kubeletEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[int64][]string // by NUMA node
	AllocResp     []byte             // an encoded ContainerAllocateResponse
}

// checksum returns the kubelet's checksum: FNV-1a over a dump of the data. The kubelet makes the
// dump with the library spew, which prints package, type and field names and sorts keys. The
// strings below imitate it, so they must not be changed. The dump distinguishes nil from empty.
func (d kubeletData) checksum() uint64 {
	b := &kubeletsum.Dump{}
	ids := func(list []string) { kubeletsum.List(b, list, func(id string) { b.Add("%s", id) }) }
	b.Add("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")
	kubeletsum.List(b, d.PodDeviceEntries, func(e kubeletEntry) {
		b.Add("{PodUID:(string)%s ContainerName:(string)%s ResourceName:(string)%s DeviceIDs:(checkpoint.DevicesPerNUMA)", e.PodUID, e.ContainerName, e.ResourceName)
		kubeletsum.Map(b, e.DeviceIDs, ids)
		b.Add(" AllocResp:([]uint8)")
		if e.AllocResp == nil {
			b.Null()
		} else {
			b.Add("%d", e.AllocResp)
		}
		b.Add("}")
	})
	b.Add(" RegisteredDevices:(map[string][]string)")
	kubeletsum.Map(b, d.RegisteredDevices, ids)
	b.Add("}")
	return b.Sum()
}

// parseKubelet parses a checkpoint. If the checksum is wrong, it rejects the whole file, since a
// part of it could assign a device to two pods.
func parseKubelet(b []byte) (kubeletFormat, error) {
	var f kubeletFormat
	if err := json.Unmarshal(b, &f); err != nil {
		return kubeletFormat{}, err
	}
	if sum := f.Data.checksum(); sum != f.Checksum {
		return kubeletFormat{}, fmt.Errorf("checksum is %d; want %d", f.Checksum, sum)
	}
	return f, nil
}

// records returns the entries by pod. Invalid entries are omitted and reported in problems.
// Namespace and name may be missing, since they are only for people.
func (d kubeletData) records() (all map[types.UID]*record, problems []error) {
	all = map[types.UID]*record{}
	for i, e := range d.PodDeviceEntries {
		h, err := e.holding()
		uid := types.UID(e.PodUID)
		if err == nil {
			r := &record{Version: recordVersion, UID: uid}
			// A copy, since an invalid entry must not change the valid part.
			if all[uid] != nil {
				r.Held = slices.Clone(all[uid].Held)
			}
			r.Held = append(r.Held, h)
			if err = r.check(uid); err == nil {
				all[uid] = r
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("entry %d: %w", i, err))
		}
	}
	return all, problems
}

// holding converts the entry. It returns an error if the plugin's answer in it cannot be decoded
// or is too large.
func (e kubeletEntry) holding() (Holding, error) {
	h := Holding{Container: e.ContainerName, Resource: e.ResourceName}
	for _, node := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
		for _, id := range e.DeviceIDs[node] {
			// A device listed under several nodes is one device. Records need a sorted list.
			i, found := slices.BinarySearchFunc(h.Devices, id, func(d HeldDevice, id string) int { return cmp.Compare(d.ID, id) })
			if !found {
				h.Devices = slices.Insert(h.Devices, i, HeldDevice{ID: id})
			}
			// -1 means no node. Other invalid numbers are ignored, as in plugins' lists.
			if node >= 0 && node < numa.MaxNodes {
				h.Devices[i].Nodes = h.Devices[i].Nodes.With(int(node))
			}
		}
	}
	// Plugins can write to the file's directory, so the file is checked like their answers.
	if err := wirecount.Check(e.AllocResp, answers.Shapes["AllocateResponse"][1], answers.Fields); err != nil {
		return Holding{}, err
	}
	var a pluginapi.ContainerAllocateResponse
	if err := proto.Unmarshal(e.AllocResp, &a); err != nil {
		return Holding{}, err
	}
	h.Attachment = attachment(&a)
	h.Attachment.sort()
	return h, nil
}

// entries returns the devices of pods in the kubelet's format. Equal states give equal checksums.
func entries(pods map[types.UID]*record) ([]kubeletEntry, error) {
	all := []kubeletEntry{}
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		for _, h := range pods[uid].Held {
			answer, err := proto.MarshalOptions{Deterministic: true}.Marshal(h.Attachment.answer())
			if err != nil {
				return nil, err
			}
			e := kubeletEntry{PodUID: string(uid), ContainerName: h.Container, ResourceName: h.Resource, DeviceIDs: map[int64][]string{}, AllocResp: answer}
			for _, d := range h.Devices {
				if d.Nodes == 0 {
					e.DeviceIDs[nowhere] = append(e.DeviceIDs[nowhere], d.ID)
				}
				for node := range d.Nodes.All() {
					e.DeviceIDs[int64(node)] = append(e.DeviceIDs[int64(node)], d.ID)
				}
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// answer returns the plugin's answer that gives this Attachment. It is the inverse of attachment.
func (a *Attachment) answer() *pluginapi.ContainerAllocateResponse {
	c := &pluginapi.ContainerAllocateResponse{Annotations: a.Annotations}
	for _, e := range a.Env {
		if c.Envs == nil {
			c.Envs = map[string]string{}
		}
		c.Envs[e.Name] = e.Value
	}
	for _, m := range a.Mounts {
		c.Mounts = append(c.Mounts, &pluginapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	for _, n := range a.Nodes {
		c.Devices = append(c.Devices, &pluginapi.DeviceSpec{ContainerPath: n.ContainerPath, HostPath: n.HostPath, Permissions: n.Permissions})
	}
	for _, name := range a.CDI {
		c.CdiDevices = append(c.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
	return c
}

// fromKubelet replaces the records of running pods by the entries of a kubelet's checkpoint, if a
// kubelet wrote the checkpoint after this agent. (The agent keeps an existing checkpoint up to
// date, so that a kubelet can continue from it.) running has the running containers by pod; it is
// nil if they are unknown. Failures are logged, and then the agent's own records count. Restore
// calls fromKubelet without Manager.mu.
func (m *Manager) fromKubelet(records []*record, known *names, running map[types.UID][]string) []*record {
	if m.cfg.SocketDir == "" {
		return records
	}
	b, err := safefile.ReadFile(filepath.Join(m.cfg.SocketDir, kubeletFile), maxKubeletFile)
	// No kubelet has run on this node, and the file is not created.
	if errors.Is(err, fs.ErrNotExist) {
		return records
	}
	// The file is kept up to date even if it cannot be read: a readable one replaces it.
	m.mu.Lock()
	m.shared = true
	m.mu.Unlock()
	var f kubeletFormat
	if err == nil {
		f, err = parseKubelet(b)
	}
	if err != nil {
		m.cfg.Log.Warn("ignored kubelet's device checkpoint", zap.Error(err))
		return records
	}
	// The file has the checksum of this agent's last write, so it is not newer than the agent's
	// own records.
	if had, err := m.cfg.Store.Read(kubeletKey); err == nil && string(had) == strconv.FormatUint(f.Checksum, 10) {
		return records
	}
	theirs, problems := f.Data.records()
	for _, err := range problems {
		m.cfg.Log.Warn("ignored entry of kubelet's device checkpoint", zap.Error(err))
	}
	// As in the kubelet, only the names are used: plugins list their devices again.
	for name := range f.Data.RegisteredDevices {
		if !slices.Contains(known.Resources, name) {
			known.Resources = append(known.Resources, name)
		}
	}
	adopted := 0
	for _, uid := range slices.Sorted(maps.Keys(theirs)) {
		// A pod without running containers gets devices again when it is admitted.
		if running != nil && len(running[uid]) == 0 {
			continue
		}
		r := theirs[uid]
		r.live = true
		// Written at once, since after this agent has written the kubelet's file, the next start
		// reads only the agent's own records.
		if err := m.write(r); err != nil {
			m.cfg.Log.Error("failed to write the device record of a kubelet's pod", zap.String("uid", string(uid)), zap.Error(err))
		}
		records = append(slices.DeleteFunc(records, func(old *record) bool { return old.UID == uid }), r)
		adopted++
	}
	m.cfg.Log.Info("took over devices from a kubelet", zap.Int("pods", adopted))
	return records
}

// keepKubeletFile keeps the kubelet's checkpoint up to date until ctx ends, and then writes it once
// more. It has its own goroutine, since the disk may hang.
func (m *Manager) keepKubeletFile(ctx context.Context) {
	for {
		select {
		case <-m.kubeletOutdated:
		case <-ctx.Done():
			select {
			case <-m.kubeletOutdated:
				m.writeKubeletFile()
			default:
			}
			return
		}
		m.writeKubeletFile()
	}
}

// writeKubeletFile writes the current state to the kubelet's checkpoint. A failure is logged; the
// next change leads to another attempt.
func (m *Manager) writeKubeletFile() {
	// A snapshot: records are never modified, and the write needs no lock.
	m.mu.Lock()
	shared, pods := m.shared, maps.Clone(m.pods)
	d := kubeletData{RegisteredDevices: map[string][]string{}}
	for name, r := range m.resources {
		d.RegisteredDevices[name] = []string{}
		for _, device := range r.devices {
			if device.Healthy {
				d.RegisteredDevices[name] = append(d.RegisteredDevices[name], device.ID)
			}
		}
	}
	m.mu.Unlock()
	if !shared {
		return
	}
	var err error
	if d.PodDeviceEntries, err = entries(pods); err == nil {
		err = m.writeKubelet(d)
	}
	if err != nil {
		m.cfg.Log.Warn("failed to write the kubelet's device checkpoint", zap.Error(err))
	}
}

// writeKubelet replaces the file, then stores its checksum. After a crash between the two, the
// next start reads its own state from the file, which is harmless.
func (m *Manager) writeKubelet(d kubeletData) error {
	f := kubeletFormat{Data: d, Checksum: d.checksum()}
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	dir, err := safefile.OpenDir(m.cfg.SocketDir, ".") // plugins can write to it
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Replace(kubeletFile, b, 0o600), dir.Close()); err != nil {
		return err
	}
	return m.cfg.Store.Write(kubeletKey, strconv.AppendUint(nil, f.Checksum, 10))
}
