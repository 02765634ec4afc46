package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
)

// PodStartsConfig configures [PodStarts]. The zero value of each field means the default named
// beside it.
type PodStartsConfig struct {
	// Echoed means that the sources deliver pods with their published statuses. A pod then counts
	// as started when the status from its source shows this. If Echoed is false, a pod counts as
	// started when the agent has computed such a status.
	Echoed  bool
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// PodStarts is the part that measures how long pods take to start, with the kubelet's
// metrics:
//
//	kubelet_pod_start_duration_seconds                    from the agent's first sight of a pod until it runs
//	kubelet_pod_start_total_duration_seconds              from a pod's creation until its containers have started
//	kubelet_pod_start_sli_duration_seconds                the same, without pulls of images and init containers
//	kubelet_first_network_pod_start_sli_duration_seconds  the same, for the first pod with a network of its own
//
// The last three are only for pods of a cluster, since these have a creation time. With
// PodStartsConfig.Echoed, a pod has started when the status from its source shows that,
// as Kubernetes' service level objective for pod starts defines it. Pods with volumes
// other than Secrets, ConfigMaps, the downward API, emptyDirs and projected volumes
// count only in kubelet_pod_start_total_duration_seconds. Pods that ran before the
// agent started do not count.
//
// If an image is pulled while an init container runs, this time is subtracted only
// once. The part keeps about a hundred bytes for each pod while the sources want it.
type PodStarts struct {
	echoed bool
	met    *metrics
	host   part.Host // set by Join

	mu      sync.Mutex
	before  map[types.UID]bool // pods that ran before the agent started; set by Restore
	starts  map[types.UID]*start
	network bool // a pod with a network of its own has started
}

var (
	_ part.Joiner      = (*PodStarts)(nil)
	_ part.Restorer    = (*PodStarts)(nil)
	_ part.Admitter    = (*PodStarts)(nil)
	_ part.Housekeeper = (*PodStarts)(nil)
	_ part.PullWatcher = (*PodStarts)(nil)
	_ part.Reporter    = (*PodStarts)(nil)
)

// NewPodStarts returns a part.
func NewPodStarts(cfg PodStartsConfig) (*PodStarts, error) {
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("podstart: %w", err)
	}
	return &PodStarts{echoed: cfg.Echoed, met: met, starts: map[types.UID]*start{}}, nil
}

// Name implements part.Part.
func (*PodStarts) Name() string { return "podstart" }

// Join implements part.Joiner.
func (p *PodStarts) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// Restore implements part.Restorer: pods that run now have already started.
func (p *PodStarts) Restore(context.Context) error {
	before := map[types.UID]bool{}
	for _, l := range p.host.RuntimePods() {
		before[l.UID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
	return nil
}

// Admit implements part.Admitter. It admits every pod, and records when the agent first sees a pod.
func (p *PodStarts) Admit(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.see(pod, time.Now())
	return nil
}

// see records a new pod. The caller holds p.mu.
func (p *PodStarts) see(pod *v1.Pod, now time.Time) *start {
	s := p.starts[pod.UID]
	if s == nil && pod.UID != "" {
		s = newStart(pod, now, p.before[pod.UID])
		p.starts[pod.UID] = s
	}
	return s
}

// Housekeep implements part.Housekeeper: it drops pods that are gone, and reads the statuses in the
// sources.
func (p *PodStarts) Housekeep(desired []*v1.Pod) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := make(map[types.UID]bool, len(desired))
	for _, pod := range desired {
		wanted[pod.UID] = true
		if s := p.see(pod, now); s != nil && p.echoed {
			p.shown(s, pod, &pod.Status, now)
		}
	}
	for uid := range p.starts {
		if !wanted[uid] {
			delete(p.starts, uid)
		}
	}
}

// PullBegan implements part.PullWatcher.
func (p *PodStarts) PullBegan(pod *v1.Pod) (ended func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.starts[pod.UID]
	if s == nil || s.over {
		return nil
	}
	s.pullBegan(time.Now())
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.pullEnded(time.Now())
	}
}

// Report implements part.Reporter. It does not change the status.
func (p *PodStarts) Report(pod *v1.Pod, st *v1.PodStatus) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.starts[pod.UID]
	if s == nil || s.over {
		return
	}
	if st.Phase == v1.PodRunning && !s.runs {
		s.runs = true
		p.met.duration.Observe(now.Sub(s.seen).Seconds())
	}
	s.follow(pod, st)
	if !p.echoed {
		p.shown(s, pod, st, now)
	}
}

// shown records the start of a pod, if its status shows that it has started. The caller
// holds p.mu.
func (p *PodStarts) shown(s *start, pod *v1.Pod, st *v1.PodStatus, now time.Time) {
	if s.over || !s.started || !hasStarted(pod, st) {
		return
	}
	s.over = true
	if !s.counts || unschedulable(&pod.Status) {
		return
	}
	total := max(now.Sub(pod.CreationTimestamp.Time), 0)
	p.met.total.Observe(total.Seconds())
	if stateful(pod) {
		return
	}
	own := max(total-s.waited(), 0).Seconds()
	p.met.sli.Observe(own)
	if !pod.Spec.HostNetwork && !p.network {
		p.network = true
		p.met.network.Set(own)
	}
	s.spans = nil
}
