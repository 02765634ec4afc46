package local

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const (
	// historyEvery is the time between two measurements. historyLength is the number of
	// measurements that are kept; together they cover an hour.
	historyEvery  = 30 * time.Second
	historyLength = int(time.Hour / historyEvery)
	// historyPods is the maximum number of pods of which usage is kept.
	historyPods = 1000
	// measureTime is the time limit of one measurement.
	measureTime = 10 * time.Second
)

// Historian is an [Agent] that has the usage history of the node and its pods.
type Historian interface {
	History() Usage
}

// Usage is the usage of the last hour. Each list has a value for each of Times; an unknown value is
// below 0.
type Usage struct {
	Times []time.Time `json:"times"` // oldest first
	Node  NodeUsage   `json:"node"`
	// Pods has the pods of the last measurement, by UID.
	Pods map[string]PodUsage `json:"pods,omitempty"`
}

// PodUsage has the usage of one pod at each of Usage.Times.
type PodUsage struct {
	CPU    []int64 `json:"cpu"`    // thousandths of a CPU
	Memory []int64 `json:"memory"` // bytes of the working set
}

// NodeUsage has the usage of the whole node at each of Usage.Times.
type NodeUsage struct {
	PodUsage

	Disk     []int64 `json:"disk"`     // used bytes of the file system that has the agent's directory
	DiskSize int64   `json:"diskSize"` // bytes, as last measured; 0 is not known
	Received []int64 `json:"received"` // bytes per second on the interface of the default route
	Sent     []int64 `json:"sent"`
}

// History measures an agent's node every 30 seconds and remembers an hour. The zero value is ready. Its
// methods may be called from any goroutine.
type History struct {
	mu    sync.Mutex
	usage Usage
	last  counted64 // the last network counters
}

// counted64 has the network counters at a time.
type counted64 struct {
	at             time.Time
	received, sent uint64
}

// Run calls measure every 30 seconds until ctx ends. It must be called once. The history needs the
// node, with disk and network, and UID, CPU and memory of each pod. If measure returns an error,
// pods that the result lacks are kept.
func (h *History) Run(ctx context.Context, measure func(context.Context) (*statsapi.Summary, error)) {
	tick := time.NewTicker(historyEvery)
	defer tick.Stop()
	for {
		h.add(ctx, measure)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Usage returns a copy of the history.
func (h *History) Usage() Usage {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.usage
	u.Times = slices.Clone(u.Times)
	for _, list := range u.Node.lists() {
		*list = slices.Clone(*list)
	}
	u.Pods = make(map[string]PodUsage, len(h.usage.Pods))
	for uid, p := range h.usage.Pods {
		u.Pods[uid] = PodUsage{slices.Clone(p.CPU), slices.Clone(p.Memory)}
	}
	return u
}

func (n *NodeUsage) lists() []*[]int64 {
	return []*[]int64{&n.CPU, &n.Memory, &n.Disk, &n.Received, &n.Sent}
}

// add adds a measurement. Values that cannot be measured are unknown; the agent's health says why.
func (h *History) add(ctx context.Context, measure func(context.Context) (*statsapi.Summary, error)) {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	now := time.Now()
	sum, podsErr := measure(ctx)
	if sum == nil {
		sum = &statsapi.Summary{}
	}
	node := &sum.Node
	h.mu.Lock()
	defer h.mu.Unlock()
	u := &h.usage
	full := len(u.Times) == historyLength
	push(&u.Times, now, full)
	disk, received, sent := int64(-1), int64(-1), int64(-1)
	if f := node.Fs; f != nil && f.CapacityBytes != nil && f.AvailableBytes != nil {
		u.Node.DiskSize = signed(f.CapacityBytes)
		disk = max(0, u.Node.DiskSize-signed(f.AvailableBytes))
	}
	if n := node.Network; n != nil && n.RxBytes != nil && n.TxBytes != nil {
		next := counted64{now, *n.RxBytes, *n.TxBytes}
		if s := now.Sub(h.last.at).Seconds(); !h.last.at.IsZero() && s > 0 && next.received >= h.last.received && next.sent >= h.last.sent {
			received, sent = int64(float64(next.received-h.last.received)/s), int64(float64(next.sent-h.last.sent)/s)
		}
		h.last = next
	}
	cpu, memory := used(node.CPU, node.Memory)
	for i, v := range []int64{cpu, memory, disk, received, sent} {
		push(u.Node.lists()[i], v, full)
	}
	u.addPods(sum.Pods, podsErr, full)
}

// addPods adds a measurement of the pods. It drops pods that are not in the measurement, unless err
// says that some pods could not be read.
func (u *Usage) addPods(pods []statsapi.PodStats, err error, full bool) {
	next := make(map[string]PodUsage, len(pods))
	add := func(uid string, cpu, memory int64) {
		p, known := u.Pods[uid]
		if !known {
			if len(next) >= historyPods {
				return
			}
			for range len(u.Times) - 1 {
				p.CPU, p.Memory = append(p.CPU, -1), append(p.Memory, -1)
			}
		}
		push(&p.CPU, cpu, known && full)
		push(&p.Memory, memory, known && full)
		next[uid] = p
	}
	for i := range pods {
		cpu, memory := used(pods[i].CPU, pods[i].Memory)
		add(pods[i].PodRef.UID, cpu, memory)
	}
	for uid, p := range u.Pods {
		if _, measured := next[uid]; !measured && err != nil && slices.Max(p.CPU) >= 0 {
			add(uid, -1, -1)
		}
	}
	u.Pods = next
}

// push appends v to the list. If full is true, it drops the first value.
func push[T any](list *[]T, v T, full bool) {
	if full {
		copy(*list, (*list)[1:])
		(*list)[len(*list)-1] = v
		return
	}
	*list = append(*list, v)
}

func used(c *statsapi.CPUStats, m *statsapi.MemoryStats) (cpu, memory int64) {
	cpu, memory = -1, -1
	if c != nil && c.UsageNanoCores != nil {
		cpu = signed(c.UsageNanoCores) / 1e6
	}
	if m != nil && m.WorkingSetBytes != nil {
		memory = signed(m.WorkingSetBytes)
	}
	return cpu, memory
}

func signed(n *uint64) int64 { return int64(min(*n, 1<<62)) }

func (h *handler) history(w http.ResponseWriter, _ *http.Request) {
	m, ok := h.agent.(Historian)
	if !ok {
		say(w, http.StatusNotImplemented, errors.New("this agent keeps no usage history: it does not implement local.Historian"))
		return
	}
	reply(w, m.History())
}

// History returns the usage of the last hour.
func (c *Client) History(ctx context.Context) (*Usage, error) {
	var u Usage
	return &u, c.get(ctx, "/v1/history", &u)
}
