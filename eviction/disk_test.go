package eviction_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
)

func TestReclaimComesFirst(t *testing.T) {
	for _, tt := range []struct {
		name               string
		dead, images, used int64
		reclaim            int64
		removed, killed    string
	}{
		{"containers do", 200, 200, 550, 0, "containers", ""},
		{"images do", 40, 500, 410, 0, "containers images", ""},
		{"nothing does", 10, 10, 950, 0, "containers images", "p"},
		{"not with the minimum to reclaim", 10, 90, 850, 100, "containers images", "p"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.dead, n.images = tt.dead*mi, tt.images*mi
				n.add("p", 0, 0, tt.used)
				th := at(rank.SignalNodeFs, 100)
				th.MinReclaim.Value = tt.reclaim * mi
				m := manager(t, n.config(th))
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if got := strings.Join(n.removed, " "); got != tt.removed {
					t.Errorf("removed %s, want %s", got, tt.removed)
				}
				wantKilled(t, n.victims(), strings.Fields(tt.killed)...)
				if !m.UnderPressure(v1.NodeDiskPressure) {
					t.Error("there is no pressure")
				}
				d := m.Decisions()[0]
				if len(d.Steps) != len(n.removed) || d.Steps[0].After-d.Steps[0].Before != tt.dead*mi {
					t.Errorf("steps are %+v", d.Steps)
				}
			})
		})
	}
}

func TestReclaimByLayout(t *testing.T) {
	for _, tt := range []struct {
		image, container string
		signal           rank.Signal
		want             string
	}{
		{"a", "a", rank.SignalNodeFs, "containers images"}, {"a", "a", rank.SignalImageFs, "containers images"},
		{"b", "b", rank.SignalNodeFs, ""}, {"b", "b", rank.SignalImageFs, "containers images"},
		{"b", "a", rank.SignalNodeFs, "containers"}, {"b", "a", rank.SignalImageFs, "images"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			low, fine := n.obs(1000*mi, 950*mi), n.obs(1000*mi, 0)
			figure := func(s rank.Signal) *rank.Observation {
				if s == tt.signal {
					return low
				}
				return fine
			}
			cfg := n.config(at(rank.SignalNodeFs, 100), at(rank.SignalImageFs, 100))
			cfg.Stats = disks{n, eviction.Disks{
				Node:  eviction.Filesystem{Device: "a", Bytes: figure(rank.SignalNodeFs)},
				Image: eviction.Filesystem{Device: tt.image, Bytes: figure(rank.SignalImageFs)},
				// As where it lies.
				Container: eviction.Filesystem{Device: tt.container, Bytes: fine},
			}}
			manager(t, cfg)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if got := strings.Join(n.removed, " "); got != tt.want {
				t.Errorf("images on %s, containers on %s: for %s removed %q, want %q", tt.image, tt.container, tt.signal, got, tt.want)
			}
		})
	}
}

// disks is a node with given filesystems.
type disks struct {
	*node
	is eviction.Disks
}

func (d disks) Disks(ctx context.Context) (eviction.Disks, error) {
	now := time.Now()
	for _, f := range []*eviction.Filesystem{&d.is.Node, &d.is.Image, &d.is.Container} {
		if f.Bytes != nil {
			o := *f.Bytes
			o.Time = now
			f.Bytes = &o
		}
	}
	return d.is, nil
}

func TestReclaimIsNotRepeatedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 2_000_000_000, 0, 950)
		manager(t, n.config(at(rank.SignalNodeFs, 100)))
		time.Sleep(55 * time.Second)
		synctest.Wait()
		if len(n.removed) != 2 {
			t.Errorf("removed %q", n.removed)
		}
	})
}

func TestSlowDiskHoldsUpNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.disk = 100 * mi
		n.add("p", 0, 0, 95)
		cfg := n.config(at(rank.SignalNodeFs, 50), at(rank.SignalMemory, 100))
		cfg.Reclaim = stuck{}
		manager(t, cfg)
		time.Sleep(10 * time.Second)
		n.add("hog", 0, 0, 870)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		wantKilled(t, n.victims(), "hog")
		time.Sleep(time.Minute) // the disk has given up on removing anything
		wantKilled(t, n.victims(), "hog")
		time.Sleep(time.Minute)
		wantKilled(t, n.victims(), "hog", "p")
	})
}

// stuck removes nothing for as long as it may.
type stuck struct{}

func (stuck) Containers(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s stuck) Images(ctx context.Context) error {
	return s.Containers(ctx)
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		limit := func(p *v1.Pod, size string) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(size)}
		}
		limit(n.add("over", 0, 0, 50), "40Mi")
		limit(n.add("within", 0, 0, 50), "60Mi")
		n.add("unlimited", 0, 0, 500)
		system := n.add("system", 2_000_000_000, 0, 50)
		limit(system, "40Mi")
		scratch := n.add("scratch", 0, 0, 50)
		scratch.Spec.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("10Mi"))}}}}
		u := n.use["scratch"]
		u.Volumes = []rank.VolumeUsage{{Name: "tmp", Used: rank.Disk{Bytes: 11 * mi}}}
		n.use["scratch"] = u

		killed, m := run(t, n, 5*time.Second, n.config())
		slices.Sort(killed)
		wantKilled(t, killed, "over", "scratch")
		if st := n.status["over"]; st.Message != "Pod ephemeral local storage usage exceeds the total limit of containers 40Mi. " || len(st.Conditions) != 0 || n.grace["over"] != 1 {
			t.Errorf("status is %+v, grace %d", st, n.grace["over"])
		}
		if st := n.status["scratch"]; st.Message != `Usage of EmptyDir volume "tmp" exceeds the limit "10Mi". ` {
			t.Errorf("status is %+v", st)
		}
		var got []string
		for _, d := range m.Decisions() {
			got = append(got, string(d.Limit)+" "+d.Considered[0].Pod.Name+" "+string(d.Considered[0].Verdict))
		}
		if want := []string{"ephemeralpodfs.limit over chosen", "emptydirfs.limit scratch chosen", "ephemeralpodfs.limit system critical"}; !slices.Equal(got[:3], want) {
			t.Errorf("decisions are %q", got)
		}
		if n.looks["memory"] != 0 {
			t.Error("memory was looked at, and there is no threshold for it")
		}
	})
}

func TestLimitsCanBeIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("over", 0, 0, 50).Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1")}
		cfg := n.config()
		cfg.IgnoreLimits = true
		killed, _ := run(t, n, time.Minute, cfg)
		wantKilled(t, killed)
		if len(n.looks) != 0 {
			t.Errorf("looked at %v", n.looks)
		}
	})
}

func TestLimitsComeBeforeThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("over", 9, 0, 50).Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
		n.add("hog", 0, 0, 870)
		killed, _ := run(t, n, time.Minute, n.config(at(rank.SignalNodeFs, 100)))
		wantKilled(t, killed, "over")
	})
}

func TestProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.memory, n.disk = 1<<40, 1<<40
		n.add("high", 9, 0, 800)
		n.add("low", 0, 0, 60)
		n.add("low-many", 0, 0, 100)
		killed, m := run(t, n, 20*time.Second, n.config(at(rank.SignalPIDs, 100)))
		wantKilled(t, killed, "low-many")
		if st := n.status["low-many"]; !strings.HasPrefix(st.Message, "The node was low on resource: pids. Threshold quantity: 100, available: 40. ") || !m.UnderPressure(v1.NodePIDPressure) {
			t.Errorf("status is %+v", st)
		}
	})
}

func TestPodsWithoutFigures(t *testing.T) {
	for _, tt := range []struct {
		name    string
		unknown string
		err     error
		guilty  bool
		want    string
	}{
		{"the guilty one is known", "new", nil, true, "guilty"},
		{"nobody known is guilty", "new", nil, false, "new"},
		{"figures of some could not be read", "new", errors.New("half of them"), true, "guilty"},
		{"nobody known is guilty, and there was an error", "new", errors.New("half of them"), false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("new", 0, 500, 10)
				request := int64(1000)
				if tt.guilty {
					request = 0
				}
				n.add("guilty", 0, request, 920)
				n.unknown["new"], n.podsErr = true, tt.err
				killed, _ := run(t, n, time.Millisecond, n.config(at(rank.SignalMemory, 100)))
				wantKilled(t, killed, strings.Fields(tt.want)...)
			})
		})
	}
}
