package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/kernel"
)

// A Summary is collected in this order: the node first, since pods' storage refers
// to its file system, then all pods in one pass. An error leaves only its own
// values unset.

// summary returns the full summary, for shared.get.
func (m *Collector) summary(ctx context.Context) (*statsapi.Summary, error) {
	return m.collect(ctx, true)
}

// smallSummary returns a summary with CPU and memory only.
func (m *Collector) smallSummary(ctx context.Context) (*statsapi.Summary, error) {
	return m.collect(ctx, false)
}

// collect reads the node and all pods. If all is true, it includes disks and volumes. It blocks
// while these do not answer. The result is nil only if ctx ends.
func (m *Collector) collect(ctx context.Context, all bool) (*statsapi.Summary, error) {
	node, nodeErr := m.readNode(ctx, all)
	pods, podsErr := m.readPods(ctx, all, node.Fs, nil)
	// Here and not on a timer: without questions nothing is added either.
	m.rates.forget(time.Now())
	// An incomplete summary would look like a node that lost its pods.
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &statsapi.Summary{Node: node, Pods: pods}, errors.Join(nodeErr, podsErr)
}

// failures collects errors with the failed operation. The zero value is ready; it
// is used by one goroutine.
type failures []error

// add adds an error unless it is nil.
func (f *failures) add(what string, err error) {
	if err != nil {
		*f = append(*f, fmt.Errorf("stats: %s: %w", what, err))
	}
}

// readNode reads the node's part of a summary. If something cannot be read, it returns everything
// else together with an error that joins the failures.
func (m *Collector) readNode(ctx context.Context, all bool) (statsapi.NodeStats, error) {
	var errs failures
	c := m.cgroups()
	n := statsapi.NodeStats{NodeName: m.cfg.NodeName}
	var err error
	n.StartTime, err = c.boot()
	errs.add("boot time", err)
	if u, err := c.usage(); err != nil {
		errs.add("node", err)
	} else {
		n.CPU, n.Memory, n.Swap, n.IO = cpuStats(u, m.rate("/", u)), memoryStats(u), swapStats(u), ioStats(u)
	}
	// A copy, since the map is the caller's.
	dirs := map[string]string{}
	if m.cfg.SystemCgroups != nil {
		maps.Copy(dirs, m.cfg.SystemCgroups())
	}
	if m.cfg.PodsCgroup != noCgroup {
		dirs[statsapi.SystemContainerPods] = m.cfg.PodsCgroup
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		u, err := c.read(dirs[name])
		// The pods' cgroup has to be there: eviction decides by it.
		if errors.Is(err, fs.ErrNotExist) && name != statsapi.SystemContainerPods {
			continue
		}
		if err != nil {
			errs.add("cgroup of "+name, err)
			continue
		}
		s := statsapi.ContainerStats{Name: name, StartTime: m.cgroupStart(c, dirs[name])}
		setContainer(&s, u, m.rate(dirs[name], u))
		n.SystemContainers = append(n.SystemContainers, s)
	}
	if !all {
		return n, errors.Join(errs...)
	}
	// The agent's own network namespace, which is the node's unless the agent is in
	// a pod.
	if interfaces, err := c.HostInterfaces(ctx); err != nil {
		errs.add("network", err)
	} else {
		n.Network = network(interfaces, time.Now())
	}
	n.Rlimit, err = c.rlimit()
	errs.add("threads", err)
	// From here on disks and the runtime are called, all within one timeout.
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The time of the question: the answer of a slow disk is from then or later.
	at := time.Now()
	if d, err := m.disks.ask(ctx, m.cfg.RootDir); err != nil {
		errs.add("file system of "+m.cfg.RootDir, err)
	} else {
		n.Fs = diskStats(&d, at)
	}
	n.Runtime, err = m.runtimeFs(ctx)
	errs.add("file systems of the runtime", err)
	return n, errors.Join(errs...)
}

// cgroupStart returns when a cgroup's directory was created or last changed; the
// kernel has no exact time. The zero time means that the cgroup is gone.
func (m *Collector) cgroupStart(c cgroups, dir string) metav1.Time {
	if v2, err := c.V2(context.Background()); !v2 || err != nil {
		dir = path.Join("memory", dir)
	}
	info, err := fs.Stat(m.cfg.Cgroups, rel(dir))
	if err != nil {
		return metav1.Time{}
	}
	return metav1.NewTime(info.ModTime())
}

// rate returns the CPU rate of a cgroup. It returns nil if u has no CPU time, and for the first
// sample. dir is the cgroup's key, by which samples are compared.
func (m *Collector) rate(dir string, u *Usage) *uint64 {
	if u.CPU == nil {
		return nil
	}
	return m.rates.next(dir, cpuSample{At: u.At, Total: *u.CPU})
}

// runtimeFs returns the file systems of images and containers, which are the same unless the
// runtime reports another device for containers. If the runtime reports several file systems, the
// first one is used, as in the kubelet. If a disk does not answer, its capacity is missing; the
// usage of images comes from the runtime, and is returned.
func (m *Collector) runtimeFs(ctx context.Context) (*statsapi.RuntimeStats, error) {
	images, containers, err := m.cfg.Runtime.Filesystems(ctx)
	if err != nil {
		return nil, err
	}
	if len(images) == 0 {
		return nil, errors.New("the runtime reports no file system for images")
	}
	disk := func(f *Filesystem) *Disk {
		if d, err := m.disks.ask(ctx, f.Mountpoint); err == nil {
			return &d
		}
		return nil
	}
	imageDisk := disk(&images[0])
	image := fsStats(&images[0], imageDisk)
	out := &statsapi.RuntimeStats{ImageFs: image, ContainerFs: image}
	// Devices are compared, not mount points: two directories may be on one file
	// system. If one device is not known, they count as one.
	if len(containers) > 0 && containers[0].Mountpoint != images[0].Mountpoint {
		if d := disk(&containers[0]); d != nil && imageDisk != nil && d.Device != imageDisk.Device {
			out.ContainerFs = fsStats(&containers[0], d)
		}
	}
	return out, nil
}

// pass is one reading of all pods. It belongs to one goroutine.
type pass struct {
	m       *Collector
	all     bool
	cgroups cgroups
	dirs    map[types.UID]podCgroup
	// node is the file system of pods' logs. It is nil if the file system is not known.
	node   *statsapi.FsStats
	layers map[string]*Disk // by mount point
	errs   failures
}

// readPods reads the pods for which want returns true. If want is nil, it reads all pods. It
// needs two lists from the runtime, however many pods there are. If the runtime does not answer,
// the result has no pods, because cgroups do not have the names of pods.
func (m *Collector) readPods(ctx context.Context, all bool, node *statsapi.FsStats, want func(types.UID) bool) ([]statsapi.PodStats, error) {
	p := &pass{m: m, all: all, cgroups: m.cgroups(), node: node, layers: map[string]*Disk{}}
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sandboxes, err := m.cfg.Runtime.Sandboxes(asking)
	p.errs.add("sandboxes", err)
	if m.cfg.PodsCgroup != noCgroup {
		p.dirs, err = p.cgroups.pods(m.cfg.PodsCgroup)
		p.errs.add("cgroups of pods", err)
	}
	containers, err := m.cfg.Runtime.Containers(asking, all)
	p.errs.add("containers", err)
	bySandbox := running(containers)
	live := livePods(sandboxes)
	maps.DeleteFunc(live, func(uid types.UID, _ *Sandbox) bool { return want != nil && !want(uid) })
	// Measurements by the runtime are much more expensive than a list, and are
	// requested only if files are not enough.
	if !all && p.anyWithout(live, bySandbox) {
		if containers, err = m.cfg.Runtime.Containers(asking, true); err == nil {
			bySandbox = running(containers)
		}
		p.errs.add("usage of containers", err)
	}
	out := make([]statsapi.PodStats, 0, len(live))
	for _, s := range live {
		// The caller has gone: missing values do not matter.
		if ctx.Err() != nil {
			break
		}
		out = append(out, p.pod(ctx, s, bySandbox[s.ID]))
	}
	// Answers of an unchanged node have the same order; live is a map.
	slices.SortFunc(out, func(a, b statsapi.PodStats) int {
		return cmp.Or(strings.Compare(a.PodRef.Namespace, b.PodRef.Namespace), strings.Compare(a.PodRef.Name, b.PodRef.Name), strings.Compare(a.PodRef.UID, b.PodRef.UID))
	})
	return out, errors.Join(p.errs...)
}

// anyWithout reports whether a container's cgroup cannot be found, so that the
// runtime has to measure it.
func (p *pass) anyWithout(live map[types.UID]*Sandbox, containers map[string][]*Container) bool {
	for uid, s := range live {
		for _, c := range containers[s.ID] {
			if _, ok := p.dirs[uid].containers[c.ID]; !ok {
				return true
			}
		}
	}
	return false
}

// pod reads one pod: its containers, its own cgroup and, if p.all is set, its storage
// and network.
func (p *pass) pod(ctx context.Context, s *Sandbox, containers []*Container) statsapi.PodStats {
	pod := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: s.Name, Namespace: s.Namespace, UID: string(s.UID)},
		StartTime:  metav1.NewTime(s.CreatedAt),
		Containers: make([]statsapi.ContainerStats, 0, len(containers)),
	}
	dir := p.dirs[s.UID]
	gone := &held{}
	if p.all {
		gone = p.held(ctx, s.UID, dir)
	}
	logs := path.Join(rel(p.m.cfg.LogDir), s.Namespace+"_"+s.Name+"_"+string(s.UID))
	for _, c := range containers {
		out := p.container(ctx, c, dir.containers[c.ID], logs)
		hold(out.Rootfs, gone.layers[c.ID])
		pod.Containers = append(pod.Containers, out)
	}
	slices.SortFunc(pod.Containers, func(a, b statsapi.ContainerStats) int { return strings.Compare(a.Name, b.Name) })
	// The pod's cgroup includes the sandbox and charges of containers that have
	// ended.
	if u, err := p.cgroups.read(dir.dir); dir.dir != "" && err == nil {
		pod.CPU, pod.Memory, pod.Swap, pod.IO = cpuStats(u, p.m.rate(dir.dir, u)), memoryStats(u), swapStats(u), ioStats(u)
		if u.Tasks != nil {
			pod.ProcessStats = &statsapi.ProcessStats{ProcessCount: u.Tasks}
		}
	} else {
		sum(&pod)
	}
	if p.all {
		p.storage(ctx, &pod, s, logs, gone)
		// A pod on the host network has no network numbers: the node's would be
		// counted again for each.
		if pod.Network = s.Network; pod.Network == nil && !s.HostNetwork {
			if all := p.cgroups.podInterfaces(dir, s.ID); all != nil {
				pod.Network = network(all, time.Now())
			}
		}
	}
	return pod
}

// podInterfaces returns the interfaces of a process in the pod's network namespace: the sandbox's
// process or, if it has none, a container's process. It returns nil if there is no process.
func (c cgroups) podInterfaces(dir podCgroup, sandbox string) []kernel.Interface {
	ids := []string{sandbox}
	if _, ok := dir.containers[sandbox]; !ok {
		ids = slices.Sorted(maps.Keys(dir.containers))
	}
	for _, id := range ids {
		pids, _ := c.procs(dir.containers[id])
		if all := c.interfaces(pids); all != nil {
			return all
		}
	}
	return nil
}

// interfaces returns the network interfaces of the first process in pids. It returns nil if pids
// is empty or the process has ended.
func (c cgroups) interfaces(pids []int) []kernel.Interface {
	if len(pids) == 0 {
		return nil
	}
	all, _ := c.Interfaces(context.Background(), pids[0])
	return all
}

// storage measures volumes and the pod's usage of the node's file system.
func (p *pass) storage(ctx context.Context, pod *statsapi.PodStats, s *Sandbox, logs string, gone *held) {
	var volumes []Volume
	if p.m.cfg.Volumes != nil {
		// Each pod has a timeout of its own: one hanging volume does not use up the
		// time of the next pod.
		asking, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var err error
		volumes, err = p.m.cfg.Volumes.Stats(asking, s.UID)
		p.errs.add("volumes of "+s.Namespace+"/"+s.Name, err)
		for i := range volumes {
			if volumes[i].Ephemeral {
				hold(&volumes[i].FsStats, gone.volumes[volumes[i].Name])
			}
			pod.VolumeStats = append(pod.VolumeStats, volumes[i].VolumeStats)
		}
	}
	own := p.own(s.UID, logs)
	if a := gone.other; a.Files > 0 {
		own = append(own, &statsapi.FsStats{Time: metav1.NewTime(gone.at), UsedBytes: &a.Bytes, InodesUsed: &a.Files})
	}
	pod.EphemeralStorage = ephemeral(pod, volumes, p.node, own)
}

// container reads one container. dir is its cgroup, or "" if the cgroup was not found. If the
// cgroup cannot be read, the usage that the runtime measured is used. If the runtime measured
// none, the usage is 0.
func (p *pass) container(ctx context.Context, c *Container, dir, logs string) statsapi.ContainerStats {
	out := statsapi.ContainerStats{Name: c.Name, StartTime: metav1.NewTime(c.StartedAt)}
	if c.StartedAt.IsZero() {
		out.StartTime = metav1.NewTime(c.CreatedAt)
	}
	u, err := p.cgroups.read(dir)
	if dir == "" || err != nil {
		// The key of its rate: samples of the runtime are not compared with samples from files.
		dir = "id/" + c.ID // no cgroup has this path
		if u = c.Usage; u == nil {
			u = &Usage{At: time.Now()}
		}
	}
	setContainer(&out, u, p.m.rate(dir, u))
	if !p.all {
		return out
	}
	if c.Layer != nil {
		out.Rootfs = fsStats(c.Layer, p.layer(ctx, c.Layer.Mountpoint))
	}
	if l := p.files(path.Join(logs, c.Name)); l != nil {
		// Logs are taken to be on the node's file system, as in the kubelet.
		if p.node != nil {
			l.AvailableBytes, l.CapacityBytes, l.Inodes, l.InodesFree = p.node.AvailableBytes, p.node.CapacityBytes, p.node.Inodes, p.node.InodesFree
		}
		out.Logs = l
	}
	return out
}

// layer returns the file system of the writable layers at mountpoint. It returns nil if the file
// system cannot be read. The file system is read once in a pass, even if that fails: a hanging
// file system costs one timeout for each pass and not for each container.
func (p *pass) layer(ctx context.Context, mountpoint string) *Disk {
	d, ok := p.layers[mountpoint]
	if !ok && mountpoint != "" {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if disk, err := p.m.disks.ask(ctx, mountpoint); err == nil {
			d = &disk
		}
		p.layers[mountpoint] = d
	}
	return d
}

// maxLogFiles limits the counted log files of a container. A pod that mounts the directory can
// create any number.
const maxLogFiles = 10_000

// entries returns the entries of a directory, at most maxLogFiles. It returns nil if the
// directory does not exist.
func (p *pass) entries(dir string) []fs.DirEntry {
	d, err := p.m.cfg.Root.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	// A list with a bound, which fs.ReadDir does not have.
	list, ok := d.(fs.ReadDirFile)
	if !ok {
		return nil
	}
	entries, err := list.ReadDir(maxLogFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return entries
}

// directories lists the directories directly in a directory.
func (p *pass) directories(dir string) (names []string) {
	for _, e := range p.entries(dir) {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// files adds up the files directly in a directory, at most maxLogFiles. It returns nil if there
// are none. It ignores subdirectories and links.
func (p *pass) files(dir string) *statsapi.FsStats {
	var size, n uint64
	entries := p.entries(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += onDisk(info)
			n++
		}
	}
	if entries == nil {
		return nil
	}
	return &statsapi.FsStats{Time: metav1.Now(), UsedBytes: &size, InodesUsed: &n}
}
