package stats

import (
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/diskusage"
)

// A file that was removed while a process has it open still uses disk space, but no walk
// over directories finds it. Such files are searched among the open files and memory
// mappings of a pod's processes, at most maxFiles of them. The result is used for
// heldKept, and for heldRest times the duration of the search if that is longer; only
// then is the pod searched again.
const (
	heldKept   = 10 * time.Second
	heldRest   = 200
	heldForgot = 10 * time.Minute // figures of pods that nobody asks for
)

// Amount is the number of bytes and of files that are used on a file system.
type Amount struct{ Bytes, Files uint64 }

func (a Amount) plus(bytes int64) Amount { return Amount{a.Bytes + uint64(max(bytes, 0)), a.Files + 1} }

// held is the disk usage of removed files that the processes of a pod have open.
type held struct {
	at      time.Time
	took    time.Duration
	layers  map[string]Amount // on the root of a container, by its id
	volumes map[string]Amount // in the pod's emptyDir volumes, by name
	other   Amount            // of other files that the agent keeps for the pod
}

// heldFiles stores, for each pod, the result of the last search for removed files that its
// processes have open. The functions must be set before use.
type heldFiles struct {
	root   string // the agent's directory
	find   func(most int) func(pids []string) []diskusage.HeldFile
	device func() uint64 // of root; 0 if not known
	// counted reports whether the kernel counts the project of a directory, with the removed
	// files in it.
	counted func(dir string) bool
	looks   detached.Group[*held]

	mu   sync.Mutex
	last map[types.UID]*held
}

// of returns the usage of removed files that a pod's processes have open. processes
// returns the process IDs by container. If a search takes longer than ctx, of returns
// the result of the previous search.
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

// look searches the removed files of a pod. It determines the volume or the layer of
// each file by the directory that is mounted where the file was opened. A file outside
// of the pod's directories, such as in a hostPath volume, is not counted; neither is one
// in a project that the kernel counts. Whether there is one is asked of directories that
// processes of the pod cannot reach: the state directory of a volume, and the workdir of
// a container, whose path has its id.
func (h *heldFiles) look(uid types.UID, processes map[string][]string) *held {
	out := &held{layers: map[string]Amount{}, volumes: map[string]Amount{}}
	find, device := h.find(maxFiles), h.device()
	for id, pids := range processes {
		for _, f := range find(pids) {
			if f.Overlay {
				if slices.Contains(strings.Split(f.Work, "/"), id) && h.counted(f.Work) {
					continue
				}
				out.layers[id] = out.layers[id].plus(f.Bytes)
				continue
			}
			_, below, own := strings.Cut(f.Root, "/pods/"+string(uid)+"/")
			if !own || f.Device != device {
				continue
			}
			if v, ok := strings.CutPrefix(below, "volumes/kubernetes.io~empty-dir/"); ok {
				v, _, _ = strings.Cut(v, "/")
				if h.counted(path.Join(h.root, "pods", string(uid), "plugins", "kubernetes.io~empty-dir", v)) {
					continue
				}
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

// HeldIn returns the usage, by the last search, of removed files in an emptyDir volume
// that the pod's processes have open. The usage of volumes in a Summary includes it.
func (m *Collector) HeldIn(uid types.UID, volume string) Amount {
	m.held.mu.Lock()
	defer m.held.mu.Unlock()
	if l := m.held.last[uid]; l != nil {
		return l.volumes[volume]
	}
	return Amount{}
}

// held searches the processes in a pod's cgroups. The processes of a pod without a
// cgroup cannot be found.
func (p *pass) held(ctx context.Context, uid types.UID, dir podCgroup) *held {
	if len(dir.containers) == 0 {
		return &held{}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
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

// hold adds a to the usage in f. It does nothing if f is nil or has no usage.
func hold(f *statsapi.FsStats, a Amount) {
	if f == nil || f.UsedBytes == nil || a.Files == 0 {
		return
	}
	f.UsedBytes = ptr(*f.UsedBytes + a.Bytes)
	if f.InodesUsed != nil {
		f.InodesUsed = ptr(*f.InodesUsed + a.Files)
	}
}

// own returns the usage of the other files of a pod on the node's disk, besides its
// volumes and its containers' layers and logs: files in its log directory, and the files
// that the agent stores for the pod, which are etc-hosts and termination messages.
func (p *pass) own(uid types.UID, logs string) []*statsapi.FsStats {
	dir := path.Join(rel(p.m.cfg.RootDir), "pods", string(uid))
	out := []*statsapi.FsStats{p.files(logs), p.files(dir)}
	for _, name := range p.directories(path.Join(dir, "containers")) {
		out = append(out, p.files(path.Join(dir, "containers", name)))
	}
	return out
}
