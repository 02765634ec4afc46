package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

// apiSource is a source of pods that somebody else makes again.
type apiSource struct{ fakeSource }

func newAPISource() *apiSource {
	return &apiSource{fakeSource{snapshots: make(chan podmgr.Snapshot, 10)}}
}

func (*apiSource) Name() string { return "api" }

func (s *apiSource) tell(pods ...*v1.Pod) {
	snap := podmgr.Snapshot{}
	for _, p := range pods {
		snap.Pods = append(snap.Pods, p.DeepCopy())
	}
	s.snapshots <- snap
}

func condition(p *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

func hasEvent(l *life, pod *v1.Pod, reason string) bool {
	return slices.ContainsFunc(l.Events(pod), func(e v1.Event) bool { return e.Reason == reason })
}

// evictedOnce is the life of an agent that has evicted the pod, which is above
// a limit of its own: the node is short of nothing.
func (n *node) evictedOnce(p *v1.Pod) (l *life, dir string) {
	sink, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: filepath.Join(n.root, "status")})
	if err != nil {
		n.t.Fatal(err)
	}
	n.sink = sink
	n.eviction = &pressure.EvictionConfig{Standalone: true}
	n.measures()
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("16Ki"))}}}}
	n.want = []*v1.Pod{p}
	l = n.start()
	settle()
	dir = filepath.Join(n.root, "root", "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", "scratch")
	n.fill(dir)
	l.wantEvicted(p)
	return l, dir
}

func (n *node) fill(dir string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "much"), make([]byte, 64<<10), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// wantEvicted waits until a pod was evicted.
func (l *life) wantEvicted(p *v1.Pod) {
	l.n.t.Helper()
	for range 120 {
		if l.pod(p.Name).Status.Reason == "Evicted" {
			settle() // its worker cleans up after it
			return
		}
		time.Sleep(time.Second)
	}
	l.n.t.Fatalf("%s was not evicted: %+v", p.Name, l.pod(p.Name).Status)
}

// began waits until a pod begins, and returns when it did.
func (l *life) began(p *v1.Pod) time.Time {
	l.n.t.Helper()
	for range 600 {
		if l.pod(p.Name).Status.Phase == v1.PodRunning {
			return time.Now()
		}
		time.Sleep(time.Second)
	}
	l.n.t.Fatalf("%s did not begin again: %+v", p.Name, l.pod(p.Name).Status)
	return time.Time{}
}

// A static pod that does it again and again begins later each time, with an
// empty directory; one that ran well for a while begins soon.
func TestStaticPodsBeginAgainAfterTheirEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := newPod("writer", runs("c"))
		l, dir := n.evictedOnce(p)
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
			start := time.Now()
			if why := l.Why(l.pod("writer")); why.Stage == "terminated" && !strings.HasPrefix(why.WaitingFor, "its time to begin again") {
				t.Errorf("why: %q", why.WaitingFor)
			}
			if took := l.began(p).Sub(start); took < want-time.Second || took > want+3*time.Second {
				t.Errorf("eviction %d: it began after %v, want %v", i+1, took, want)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
				t.Errorf("the volume has %v, %v", entries, err)
			}
			n.fill(dir)
			l.wantEvicted(p)
		}
		l.began(p)
		time.Sleep(11 * time.Minute)
		n.fill(dir)
		l.wantEvicted(p)
		start := time.Now()
		if took := l.began(p).Sub(start); took > 13*time.Second {
			t.Errorf("it ran for 11 minutes and began after %v, want 10s", took)
		}
		l.stop()
	})
}

// What an agent has evicted begins in the life of the next one.
func TestEvictedPodBeginsInTheNextLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := newNode(t), newPod("writer", runs("c"))
		l, _ := n.evictedOnce(p)
		l.stop()
		l = n.start()
		time.Sleep(5 * time.Second)
		l.wantPhase("writer", v1.PodFailed)
		l.began(p)
		l.stop()
	})
}

// An emptyDir above its limit, or that takes its pod above its own, ends the pod
// within seconds, and what it held goes. The kubelet needs up to a minute more.
func TestLimitOfEmptyDir(t *testing.T) {
	for _, tc := range []struct {
		name    string
		size    string // of the volume
		limit   string // of the pod
		message string
	}{
		{"of the volume", "16Ki", "", `Usage of EmptyDir volume "scratch" exceeds the limit "16Ki". `},
		{"of the pod", "", "20Ki", `Pod ephemeral local storage usage exceeds the total limit of containers 20Ki. `},
		{"of both, the pod's first", "1Mi", "20Ki", `Pod ephemeral local storage usage exceeds the total limit of containers 20Ki. `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.eviction = &pressure.EvictionConfig{Standalone: true}
				n.measures()
				c := runs("c")
				c.VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
				dir := &v1.EmptyDirVolumeSource{}
				if tc.size != "" {
					dir.SizeLimit = new(resource.MustParse(tc.size))
				}
				if tc.limit != "" {
					c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(tc.limit)}
				}
				p := newPod("writer", c)
				p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: dir}}}
				n.want = []*v1.Pod{p, newPod("other", runs("c"))}
				l := n.start()
				defer l.stop()
				time.Sleep(25 * time.Second) // it has been measured, at 10 s
				synctest.Wait()
				l.wantPhase("writer", v1.PodRunning)
				path := filepath.Join(n.root, "root", "pods", "uid-writer", "volumes", "kubernetes.io~empty-dir", "scratch")
				n.fill(path)
				start := time.Now()
				l.wantEvicted(p)
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("noticed after %v, want 10s at most", took)
				}
				settle()
				if p := l.pod("writer"); p.Status.Message != tc.message {
					t.Errorf("writer: %s %s %q; %+v", p.Status.Phase, p.Status.Reason, p.Status.Message, l.WhyNode().Decisions)
				}
				l.wantPhase("other", v1.PodRunning)
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("the volume is there: %v", err)
				}
			})
		})
	}
}

// measured is a runtime that measures containers, and has a disk for images.
type measured struct {
	*critest.Runtime
	disk string // where images are
}

func (m measured) ListContainerStats(ctx context.Context, _ *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	list, err := m.ListContainers(ctx, &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.ContainerStats
	for _, c := range list {
		s, err := m.ContainerStats(ctx, c.GetId())
		if err != nil {
			continue
		}
		s.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp: 1, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m.disk},
			UsedBytes: &runtimeapi.UInt64Value{Value: 4096}, InodesUsed: &runtimeapi.UInt64Value{Value: 3},
		}
		out = append(out, s)
	}
	return out, nil
}

func (m measured) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m.disk}, UsedBytes: &runtimeapi.UInt64Value{Value: 12345},
	}}}, nil
}

// measures has the node's runtime tell what containers use.
func (n *node) measures() {
	n.measured = &measured{n.rt, n.t.TempDir()}
}
