package stats

import (
	"context"
	"maps"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/diskusage"
)

// Files that were removed while a process has them open take as much of the disk as
// others, and no walk finds them. They are looked for among the descriptors and mappings
// of a pod's processes, at most maxFiles of them, and not before heldKept and heldRest
// times the duration of the last look have passed.
const (
	heldKept   = 10 * time.Second
	heldRest   = 200
	heldForgot = 10 * time.Minute // figures of pods that nobody asks for
)

// Amount is what takes room on a file system.
type Amount struct{ Bytes, Files uint64 }

func (a Amount) plus(bytes int64) Amount { return Amount{a.Bytes + uint64(max(bytes, 0)), a.Files + 1} }

// held is what the processes of a pod hold of removed files.
type held struct {
	at      time.Time
	took    time.Duration
	layers  map[string]Amount // on the root of a container, by its id
	volumes map[string]Amount // in the pod's emptyDir volumes, by name
	other   Amount            // of other files that the agent keeps for the pod
}

// heldFiles keeps the last look at each pod. The zero value needs find and device.
type heldFiles struct {
	find   func(most int) func(pids []string) []diskusage.HeldFile
	device func() uint64 // of the agent's directory; 0 if not known
	looks  detached.Group[*held]

	mu   sync.Mutex
	last map[types.UID]*held
}

// of returns what a pod's processes hold. processes returns them by container. If a look
// takes longer than ctx, the result is that of the last one.
func (h *heldFiles) of(ctx context.Context, uid types.UID, processes func() map[string][]string) *held {
	h.mu.Lock()
	last := h.last[uid]
	h.mu.Unlock()
	now := time.Now()
	if last != nil && now.Sub(last.at) < max(heldKept, heldRest*last.took) {
		return last
	}
	// It may block on a file of a server that is gone.
	fresh, err := h.looks.Do(ctx, string(uid), func() (*held, error) {
		l := h.look(uid, processes())
		l.at, l.took = now, time.Since(now)
		h.keep(uid, l)
		return l, nil
	})
	switch {
	case err == nil:
		return fresh
	case last != nil:
		return last
	default:
		return &held{}
	}
}

// look finds out what each file belongs to by the directory that is mounted where it was
// opened. What is in no directory of the pod, such as a host path, is not the pod's.
func (h *heldFiles) look(uid types.UID, processes map[string][]string) *held {
	out := &held{layers: map[string]Amount{}, volumes: map[string]Amount{}}
	find, device := h.find(maxFiles), h.device()
	for id, pids := range processes {
		for _, f := range find(pids) {
			if f.Overlay {
				out.layers[id] = out.layers[id].plus(f.Bytes)
				continue
			}
			_, below, own := strings.Cut(f.Root, "/pods/"+string(uid)+"/")
			if !own || f.Device != device {
				continue
			}
			if v, ok := strings.CutPrefix(below, "volumes/kubernetes.io~empty-dir/"); ok {
				v, _, _ = strings.Cut(v, "/")
				out.volumes[v] = out.volumes[v].plus(f.Bytes)
			} else {
				out.other = out.other.plus(f.Bytes)
			}
		}
	}
	return out
}

func (h *heldFiles) keep(uid types.UID, l *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[types.UID]*held{}
	}
	maps.DeleteFunc(h.last, func(_ types.UID, old *held) bool { return l.at.Sub(old.at) >= heldForgot })
	h.last[uid] = l
}

// HeldIn returns what was last found of removed files that a pod's processes hold in one
// of its emptyDir volumes. The figures of volumes in a Summary include it.
func (m *Collector) HeldIn(uid types.UID, volume string) Amount {
	m.held.mu.Lock()
	defer m.held.mu.Unlock()
	if l := m.held.last[uid]; l != nil {
		return l.volumes[volume]
	}
	return Amount{}
}

// held looks at the processes in a pod's cgroups. A pod without one has none that can be
// found.
func (p *pass) held(ctx context.Context, uid types.UID, dir podCgroup) *held {
	if len(dir.containers) == 0 {
		return &held{}
	}
	ctx, cancel := context.WithTimeout(ctx, p.m.cfg.Timeout)
	defer cancel()
	return p.m.held.of(ctx, uid, func() map[string][]string {
		c, out := p.cgroups, make(map[string][]string, len(dir.containers))
		for id, d := range dir.containers {
			for _, pid := range c.below(d, maxCgroupDepth) {
				out[id] = append(out[id], strconv.Itoa(pid))
			}
		}
		return out
	})
}

// hold adds an amount to a figure, if there is one.
func hold(f *statsapi.FsStats, a Amount) {
	if f == nil || f.UsedBytes == nil || a.Files == 0 {
		return
	}
	f.UsedBytes = ptr(*f.UsedBytes + a.Bytes)
	if f.InodesUsed != nil {
		f.InodesUsed = ptr(*f.InodesUsed + a.Files)
	}
}

// own returns the usage of all that a pod can write on the node's disk beside its volumes
// and its containers' layers and logs: files in its log directory, and what the agent
// keeps for it, etc-hosts and termination messages.
func (p *pass) own(uid types.UID, logs string) []*statsapi.FsStats {
	dir := path.Join(rel(p.m.cfg.RootDir), "pods", string(uid))
	out := []*statsapi.FsStats{p.files(logs), p.files(dir)}
	for _, name := range p.directories(path.Join(dir, "containers")) {
		out = append(out, p.files(path.Join(dir, "containers", name)))
	}
	return out
}
