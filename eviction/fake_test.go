package eviction_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
)

const mi = 1 << 20

// node is a machine in memory: what its pods use decides its figures.
type node struct {
	mu       sync.Mutex
	memory   int64 // capacities
	disk     int64
	image    int64 // of a filesystem of its own; 0 if there is none
	pids     int64
	images   int64 // unused ones, bytes; on the image filesystem
	dead     int64 // ended containers, bytes
	pods     map[types.UID]*v1.Pod
	use      map[types.UID]rank.Usage
	unknown  map[types.UID]bool
	statErr  error         // of reading node figures
	podsErr  error         // of reading pods
	podsTake time.Duration // reading pods takes
	stale    time.Time     // if not zero, the time of every figure
	killTake time.Duration
	freeTake time.Duration            // what volumes of an ended pod take to go
	tmpfs    map[types.UID]int64      // bytes of memory in volumes
	left     map[types.UID]rank.Usage // of ended pods, in volumes
	hang     map[types.UID]bool       // kills that never end
	refuse   map[types.UID]bool       // kills that fail
	spare    map[types.UID]bool       // pods that go on after a kill that succeeded

	killed  []string
	grace   map[string]int64
	status  map[string]v1.PodStatus
	events  []string
	marks   map[string]map[string]string
	looks   map[string]int
	removed []string
	changes int
}

func newNode() *node {
	return &node{
		memory: 1000 * mi, disk: 1000 * mi, pids: 1000,
		pods: map[types.UID]*v1.Pod{}, use: map[types.UID]rank.Usage{}, unknown: map[types.UID]bool{},
		hang: map[types.UID]bool{}, refuse: map[types.UID]bool{}, spare: map[types.UID]bool{}, grace: map[string]int64{},
		tmpfs: map[types.UID]int64{}, left: map[types.UID]rank.Usage{},
		status: map[string]v1.PodStatus{}, marks: map[string]map[string]string{}, looks: map[string]int{},
	}
}

// add has a pod run that requests so much of memory and disk, and uses so much
// of everything.
func (n *node) add(name string, priority int32, request, used int64) *v1.Pod {
	req := v1.ResourceList{}
	if request > 0 {
		req[v1.ResourceMemory] = *resource.NewQuantity(request*mi, resource.BinarySI)
		req[v1.ResourceEphemeralStorage] = req[v1.ResourceMemory]
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{
			Priority: &priority, TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: req}}},
		},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[p.UID] = p
	n.set(name, used)
	return p
}

// set changes what a pod uses.
func (n *node) set(name string, used int64) {
	n.use[types.UID(name)] = rank.Usage{
		Memory: used * mi, Processes: used, EphemeralStorage: used * mi,
		Containers: []rank.ContainerUsage{{Name: "main", Memory: used * mi, Rootfs: &rank.Disk{Bytes: used * mi, Inodes: used}, Logs: &rank.Disk{}}},
	}
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) sum(of func(rank.Usage) int64) (total int64) {
	for uid := range n.pods {
		total += of(n.use[uid])
	}
	for _, u := range n.left {
		total += of(u)
	}
	return total
}

func (n *node) now() time.Time {
	if !n.stale.IsZero() {
		return n.stale
	}
	return time.Now()
}

func (n *node) obs(capacity, used int64) *rank.Observation {
	return &rank.Observation{Available: capacity - used, Capacity: capacity, Time: n.now()}
}

func (n *node) Memory(context.Context) (eviction.Memory, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks["memory"]++
	if n.statErr != nil {
		return eviction.Memory{}, n.statErr
	}
	o := *n.obs(n.memory, n.sum(func(u rank.Usage) int64 { return u.Memory }))
	return eviction.Memory{Node: &eviction.MemoryFigure{Observation: o, InactiveFile: 7}, Pods: &eviction.MemoryFigure{Observation: o}}, nil
}

func (n *node) Disks(context.Context) (eviction.Disks, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks["disk"]++
	if n.statErr != nil {
		return eviction.Disks{}, n.statErr
	}
	written := n.sum(func(u rank.Usage) int64 { return u.EphemeralStorage }) + n.dead
	if n.image == 0 {
		return eviction.Disks{Node: eviction.Filesystem{Device: "8:1", Bytes: n.obs(n.disk, written+n.images)}}, nil
	}
	return eviction.Disks{
		Node:  eviction.Filesystem{Device: "8:1", Bytes: n.obs(n.disk, 0)},
		Image: eviction.Filesystem{Device: "8:2", Bytes: n.obs(n.image, written+n.images)},
	}, nil
}

func (n *node) Processes(context.Context) (rank.Observation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks["pid"]++
	return *n.obs(n.pids, n.sum(func(u rank.Usage) int64 { return u.Processes })), n.statErr
}

func (n *node) Pods(ctx context.Context, pods []*v1.Pod, want eviction.Want) (map[types.UID]*rank.Usage, error) {
	n.mu.Lock()
	take := n.podsTake
	n.mu.Unlock()
	if take > 0 {
		select {
		case <-time.After(take):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks["pods "+want.String()]++
	out := map[types.UID]*rank.Usage{}
	for _, p := range pods {
		if u, ok := n.use[p.UID]; ok && !n.unknown[p.UID] {
			out[p.UID] = &u
		}
	}
	return out, n.podsErr
}

func (n *node) list() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.pods), func(a, b *v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

func (n *node) kill(ctx context.Context, pod *v1.Pod, why podlife.Cause) error {
	n.mu.Lock()
	n.killed = append(n.killed, pod.Name)
	n.grace[pod.Name] = podlife.GraceSeconds(pod, why)
	var st v1.PodStatus
	why.Apply(&st)
	why.Apply(&st)
	n.status[pod.Name] = st
	hang, refuse, take := n.hang[pod.UID], n.refuse[pod.UID], n.killTake
	n.mu.Unlock()
	if refuse {
		return errors.New("no")
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(take)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.spare[pod.UID] {
		delete(n.pods, pod.UID)
		if n.freeTake > 0 {
			n.left[pod.UID] = rank.Usage{EphemeralStorage: n.use[pod.UID].EphemeralStorage, Memory: n.tmpfs[pod.UID]}
			time.AfterFunc(n.freeTake, func() { n.change(func() { delete(n.left, pod.UID) }) })
		}
	}
	return nil
}

func (n *node) freed(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, left := n.left[uid]
	return !left
}

func (n *node) Containers(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removed = append(n.removed, "containers")
	n.dead = 0
	return nil
}

func (n *node) Images(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removed = append(n.removed, "images")
	n.images = 0
	return errors.New("one of them is in use")
}

func (n *node) Pod(pod *v1.Pod, marks map[string]string, eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprintf("%s %s %s: %s", pod.Name, eventType, reason, message))
	n.marks[pod.Name] = marks
}

func (n *node) Node(eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprintf("node %s %s: %s", eventType, reason, message))
}

func (n *node) victims() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.killed)
}

func (n *node) changed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changes
}

func (n *node) config(thresholds ...rank.Threshold) eviction.Config {
	return eviction.Config{
		Stats: n, Pods: n.list, Kill: n.kill, Freed: n.freed, Reclaim: n, Events: n, Thresholds: thresholds,
		Changed: func() { n.mu.Lock(); n.changes++; n.mu.Unlock() },
	}
}

// manager runs until the test ends.
func manager(t *testing.T, cfg eviction.Config) *eviction.Manager {
	t.Helper()
	m, err := eviction.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	return m
}

// at is a hard threshold, in MiB or processes.
func at(s rank.Signal, n int64) rank.Threshold {
	if s != rank.SignalPIDs {
		n *= mi
	}
	return rank.Threshold{Signal: s, Value: rank.Amount{Value: n, Format: resource.BinarySI}}
}

// samples is the count of a metric with that value of its label.
func samples(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}
