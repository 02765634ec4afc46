package statusmgr_test

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/statusmgr"
)

// realPod is a pod of two containers with a status like that of a cluster.
func realPod(i int) (*v1.Pod, v1.PodStatus) {
	p := newPod(fmt.Sprint("pod-", i))
	p.Spec.Containers = nil
	began := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 123, time.UTC))
	start := metav1.NewTime(began.Truncate(time.Second))
	st := v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}},
		PodIP: "10.1.0.1", PodIPs: []v1.PodIP{{IP: "10.1.0.1"}}, StartTime: &start}
	for _, typ := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled} {
		st.Conditions = append(st.Conditions, v1.PodCondition{Type: typ, Status: v1.ConditionTrue, LastTransitionTime: began})
	}
	yes := true
	for c := range 2 {
		name := fmt.Sprint("container-", c)
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("128Mi")}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Image: "registry.example/app:v1"})
		st.ContainerStatuses = append(st.ContainerStatuses, v1.ContainerStatus{
			Name: name, Ready: true, Started: &yes, Image: "registry.example/app:v1", ImageID: "registry.example/app@sha256:0123456789abcdef",
			ContainerID: fmt.Sprint("containerd://", i, "-", c), State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: began}},
			AllocatedResources: list, Resources: &v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()},
			VolumeMounts: []v1.VolumeMountStatus{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		})
	}
	return p, st
}

// barePod is a pod with a status that says next to nothing.
func barePod(i int) (*v1.Pod, v1.PodStatus) {
	start := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	return newPod(fmt.Sprint("pod-", i)), v1.PodStatus{Phase: v1.PodRunning, Message: fmt.Sprint(i), StartTime: &start}
}

// BenchmarkSet1000 hands over a status of each of 1,000 pods. The statuses are
// made beforehand, two for each pod, which take turns.
func BenchmarkSet1000(b *testing.B) {
	for _, c := range []struct {
		kind string
		make func(int) (*v1.Pod, v1.PodStatus)
	}{{"unchanged", realPod}, {"changed", realPod}, {"bare/unchanged", barePod}, {"bare/changed", barePod}} {
		b.Run(c.kind, func(b *testing.B) {
			m, err := statusmgr.New(statusmgr.Config{})
			if err != nil {
				b.Fatal(err)
			}
			var pods [1000]*v1.Pod
			var sts [2][1000]v1.PodStatus
			for i := range pods {
				pods[i], sts[0][i] = c.make(i)
				sts[1][i] = *sts[0][i].DeepCopy()
				if path.Base(c.kind) == "changed" {
					sts[1][i].Message = "another"
				}
			}
			b.ReportAllocs()
			best := time.Hour // of a round, without whatever else the machine does
			for n := 0; b.Loop(); n++ {
				began := time.Now()
				for i := range pods {
					m.Set(pods[i], sts[n%2][i])
				}
				best = min(best, time.Since(began))
			}
			b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
		})
	}
}

// slowSink takes 5 ms for each write.
type slowSink struct{ writes atomic.Int64 }

func (s *slowSink) Update(context.Context, *v1.Pod, v1.PodStatus) error {
	time.Sleep(5 * time.Millisecond)
	s.writes.Add(1)
	return nil
}

func (s *slowSink) Delete(context.Context, *v1.Pod) error { return nil }

// BenchmarkSlowSink has 1,000 pods change ten times each while the sink takes
// 5 ms for a write: how long until it has all, how many writes a transition
// costs, and how many goroutines that takes.
func BenchmarkSlowSink(b *testing.B) {
	const pods, transitions = 1000, 10
	for b.Loop() {
		sink := &slowSink{}
		m, err := statusmgr.New(statusmgr.Config{Sink: sink})
		if err != nil {
			b.Fatal(err)
		}
		stop := testrun.Start(b, m.Run)
		before, began, most := runtime.NumGoroutine(), time.Now(), 0
		for n := range transitions {
			for i := range pods {
				p, st := realPod(i)
				st.ContainerStatuses[0].Ready = n%2 == 1
				m.Set(p, st)
			}
			most = max(most, runtime.NumGoroutine()-before)
		}
		for last := int64(-1); last < pods || last != sink.writes.Load(); time.Sleep(20 * time.Millisecond) {
			last = sink.writes.Load()
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-to-drain")
		b.ReportMetric(float64(sink.writes.Load())/(pods*transitions), "writes/transition")
		b.ReportMetric(float64(most), "goroutines")
		stop()
	}
}
