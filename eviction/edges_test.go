package eviction_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
)

// Whose pods are spared, to the last one that is not.
func TestWhoIsCritical(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("mirror", 0, 0, 200).Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
		n.add("static", 0, 0, 200).Annotations = map[string]string{"kubernetes.io/config.source": "http"}
		n.add("system", 2_000_000_000, 0, 200)
		n.add("node", 2_000_001_000, 0, 200)
		n.add("api", 1_999_999_999, 0, 150).Annotations = map[string]string{"kubernetes.io/config.source": "api"}
		killed, m := run(t, n, time.Minute, n.config(at(rank.SignalMemory, 100)))
		wantKilled(t, killed, "api")
		var critical []string
		for _, c := range m.Decisions()[0].Considered {
			if c.Verdict == eviction.Critical {
				critical = append(critical, c.Pod.Name)
			}
		}
		slices.Sort(critical)
		if want := []string{"mirror", "node", "static", "system"}; !slices.Equal(critical, want) {
			t.Errorf("critical are %q, want %q", critical, want)
		}
	})
}

// A kill has half as much time again as its pod, and 10 s at least.
func TestDeadlineOfAKill(t *testing.T) {
	for grace, want := range map[int64]time.Duration{0: 10 * time.Second, 6: 10 * time.Second, 60: 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.add("stuck", 0, 0, 950).Spec.TerminationGracePeriodSeconds = &grace
			n.hang["stuck"] = true
			soft := at(rank.SignalMemory, 100)
			soft.Grace = time.Second
			cfg := n.config(soft)
			cfg.MaxPodGraceSeconds = 3600
			m := manager(t, cfg)
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if v := m.Decisions()[0].Victims[0]; v.Took != want || v.Error == "" {
				t.Errorf("grace %d s: given up after %v, %q; want %v", grace, v.Took, v.Error, want)
			}
		})
	}
}

// Each kind of limit, with its label, and where a container's layer counts.
func TestKindsOfLimits(t *testing.T) {
	limits := func(size string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(size)}}
	}
	for _, tt := range []struct {
		name    string
		spec    func(*v1.PodSpec) // of a pod that has written 50Mi to the layer of main
		apart   bool              // layers have a filesystem of their own
		label   string            // "": it stays
		message string
	}{
		{"of a container", func(s *v1.PodSpec) {
			s.Containers[0].Resources = limits("40Mi")
			s.Containers = append(s.Containers, v1.Container{Name: "other", Resources: limits("1Gi")})
		}, false, "ephemeralcontainerfs.limit", `Container main exceeded its local ephemeral storage limit "40Mi". `},
		{"of a container whose layer does not count", func(s *v1.PodSpec) {
			s.Containers[0].Resources = limits("40Mi")
			s.Containers = append(s.Containers, v1.Container{Name: "other", Resources: limits("1Gi")})
		}, true, "", ""},
		{"of a pod", func(s *v1.PodSpec) { s.Containers[0].Resources = limits("40Mi") }, false,
			"ephemeralpodfs.limit", "Pod ephemeral local storage usage exceeds the total limit of containers 40Mi. "},
		{"of a volume", func(s *v1.PodSpec) {
			s.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("4Mi"))}}}}
		}, false, "emptydirfs.limit", `Usage of EmptyDir volume "tmp" exceeds the limit "4Mi". `},
		{"of a volume in memory", func(s *v1.PodSpec) {
			s.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
				Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse("4Mi")),
			}}}}
		}, false, "emptydirfs.limit", `Usage of EmptyDir volume "tmp" exceeds the limit "4Mi". `},
		{"none", func(*v1.PodSpec) {}, false, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				if tt.apart {
					n.image = 1000 * mi
				}
				tt.spec(&n.add("p", 0, 0, 50).Spec)
				u := n.use["p"]
				u.Volumes = []rank.VolumeUsage{{Name: "tmp", Used: rank.Disk{Bytes: 5 * mi}}}
				n.use["p"] = u
				reg := prometheus.NewRegistry()
				cfg := n.config()
				cfg.Metrics = reg
				killed, _ := run(t, n, time.Minute, cfg)
				if tt.label == "" {
					wantKilled(t, killed)
					return
				}
				wantKilled(t, killed, "p")
				if st := n.status["p"]; st.Message != tt.message || st.Reason != "Evicted" || len(st.Conditions) != 0 || n.grace["p"] != 1 {
					t.Errorf("status %+v, grace %d", st, n.grace["p"])
				}
				if got := samples(t, reg, "kubelet_evictions", tt.label); got != 1 {
					t.Errorf("%v evictions for %s", got, tt.label)
				}
				if want := []string{"p Warning Evicted: " + tt.message}; !slices.Equal(n.events, want) {
					t.Errorf("events %q, want %q", n.events, want)
				}
			})
		})
	}
}

// Whatever is short, only for memory are there pods that may begin.
func TestAdmissionByCondition(t *testing.T) {
	pod := func(request string, key string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
		if request != "" {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}
		}
		if key != "" {
			p.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}
		}
		return p
	}
	for _, tt := range []struct {
		signals []rank.Signal
		message string
		key     string // which is tolerated
		sized   bool   // a pod that requests memory may begin
		tolerant,
		both bool
	}{
		{signals: []rank.Signal{rank.SignalMemory}, message: "The node had condition: [MemoryPressure]. ", key: v1.TaintNodeMemoryPressure, sized: true, tolerant: true, both: true},
		{signals: []rank.Signal{rank.SignalNodeFs}, message: "The node had condition: [DiskPressure]. ", key: v1.TaintNodeDiskPressure},
		{signals: []rank.Signal{rank.SignalPIDs}, message: "The node had condition: [PIDPressure]. ", key: v1.TaintNodePIDPressure},
		{signals: []rank.Signal{rank.SignalMemory, rank.SignalNodeFs}, message: "The node had condition: [MemoryPressure DiskPressure]. ", key: v1.TaintNodeMemoryPressure},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.add("system", 2_000_000_000, 0, 950)
			var list []rank.Threshold
			for _, s := range tt.signals {
				list = append(list, at(s, 100))
			}
			m := manager(t, n.config(list...))
			time.Sleep(time.Second)
			synctest.Wait()
			if no := m.Admit(pod("", "")); no == nil || no.Reason != "Evicted" || no.Message != tt.message {
				t.Errorf("%v: %+v, want %s", tt.signals, no, tt.message)
			}
			for what, got := range map[string][2]bool{
				"requests memory": {m.Admit(pod("1Mi", "")) == nil, tt.sized}, "tolerates": {m.Admit(pod("", tt.key)) == nil, tt.tolerant},
				"requests and tolerates": {m.Admit(pod("1Mi", tt.key)) == nil, tt.both},
			} {
				if got[0] != got[1] {
					t.Errorf("%v: one that %s may begin: %v", tt.signals, what, got[0])
				}
			}
		})
	}
}

// partial is a node that does not tell of the cgroup of its pods.
type partial struct{ *node }

func (p partial) Memory(ctx context.Context) (eviction.Memory, error) {
	m, err := p.node.Memory(ctx)
	m.Pods = nil
	return m, err
}

// What is not told of is not met, and has nobody aim; the rest is as ever.
func TestFiguresOfOneGroupAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 850)
		pods, whole := &told{wake: make(chan string)}, &told{wake: make(chan string)}
		cfg := n.config(at(rank.SignalAllocatableMemory, 200), at(rank.SignalMemory, 100))
		cfg.Stats = partial{n}
		cfg.Notify = []eviction.Notifier{{Source: pods, Signal: rank.SignalAllocatableMemory}, {Source: whole, Signal: rank.SignalMemory}}
		m := manager(t, cfg)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		wantKilled(t, n.victims())
		if pods.aims != 0 || whole.aims == 0 || m.UnderPressure(v1.NodeMemoryPressure) {
			t.Errorf("aimed %d and %d times; %v", pods.aims, whole.aims, m.Conditions())
		}
		n.add("more", 0, 0, 80)
		time.Sleep(11 * time.Second)
		wantKilled(t, n.victims(), "p")
	})
}

// Which filesystems there are is looked at again: a disk for images that comes,
// or goes, changes whom it is the fault of. The kubelet looks once.
func TestLayoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 950)
		n.refuse["p"] = true
		m := manager(t, n.config(at(rank.SignalNodeFs, 100), at(rank.SignalContainerFs, 1)))
		derived := func() (out []string) {
			for _, f := range m.Figures() {
				q := f.Threshold.Value.Quantity(0)
				out = append(out, string(f.Threshold.Signal)+" "+q.String())
			}
			return out
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := derived(); !slices.Contains(got, "containerfs.available 100Mi") {
			t.Errorf("on one filesystem: %q", got)
		}
		n.change(func() { n.image = 2000 * mi }) // with what p wrote
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := derived(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "containerfs") }) {
			t.Errorf("with a filesystem for images: %q", got)
		}
	})
}
