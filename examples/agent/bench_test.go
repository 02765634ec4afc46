package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/podspec"
)

// BenchmarkStart is how long pods of one container take until they run, from
// the manifest's rename on: by the agent, and with nothing but the same CRI
// calls, so many pods at a time. Either is what the runtime says of the
// container's start.
func BenchmarkStart(b *testing.B) {
	l := newLab(b)
	for _, n := range []int{1, 10, 50} {
		names := hundredNames()[:n]
		for _, inFlight := range []int{2, 4, 8} {
			b.Run(fmt.Sprintf("pods=%d/by hand/in flight=%d", n, inFlight), func(b *testing.B) {
				l.measure(b, func() []time.Duration { return l.byHand(names, inFlight) }, func() { l.removeByHand() })
			})
		}
		b.Run(fmt.Sprintf("pods=%d/agent", n), func(b *testing.B) {
			l.start() // only here: it would take what is made by hand for orphans
			defer l.kill()
			l.measure(b, func() []time.Duration { return l.byAgent(names) }, func() {
				for _, n := range names {
					l.remove(n + ".yaml")
				}
				l.untilGone(names...)
			})
		})
	}
}

func (l *lab) measure(b *testing.B, run func() []time.Duration, clear func()) {
	var median, last time.Duration
	for b.Loop() {
		took := run()
		slices.Sort(took)
		median += took[len(took)/2]
		last += took[len(took)-1]
		b.StopTimer()
		clear()
		b.StartTimer()
	}
	b.ReportMetric(float64(median.Milliseconds())/float64(b.N), "ms/median")
	b.ReportMetric(float64(last.Milliseconds())/float64(b.N), "ms/last")
}

func (l *lab) byAgent(names []string) []time.Duration {
	begin := time.Now()
	for _, n := range names {
		l.write(n+".yaml", box(n, "sleep, forever"))
	}
	var all []*runtimeapi.Container
	for len(all) < len(names) {
		time.Sleep(100 * time.Millisecond) // seldom, so that asking costs little
		var err error
		all, err = l.cri.ListContainers(l.t.Context(), &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		})
		l.must(err)
	}
	var took []time.Duration
	for _, c := range all {
		took = append(took, l.started(c.Id).Sub(begin))
	}
	return took
}

func (l *lab) byHand(names []string, inFlight int) []time.Duration {
	begin := time.Now()
	slots := make(chan struct{}, inFlight)
	ids := make([]string, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, n := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ids[i], errs[i] = l.startByHand(n)
		})
	}
	wg.Wait()
	l.must(cmp.Or(errs...))
	var took []time.Duration
	for _, id := range ids {
		took = append(took, l.started(id).Sub(begin))
	}
	return took
}

// startByHand makes the calls that the agent makes for box(name).
func (l *lab) startByHand(name string) (id string, err error) {
	ctx := context.Background()
	pod := &v1.Pod{}
	if err := yaml.Unmarshal([]byte(box(name, "sleep, forever")), pod); err != nil {
		return "", err
	}
	pod.Namespace, pod.UID = "default", types.UID("hand-"+name)
	in := podspec.Input{Pod: pod, PodDir: filepath.Join(l.root, "hand", name), Node: podspec.Node{PodLogsDir: l.logs}}
	sandbox, err := podspec.Sandbox(in, 0)
	if err != nil {
		return "", err
	}
	sandboxID, err := l.cri.RunPodSandbox(ctx, sandbox.Config, "")
	if err != nil {
		return "", err
	}
	plan, err := podspec.Container(in, "c", podspec.ContainerOptions{Image: podspec.ImageFacts{Ref: pod.Spec.Containers[0].Image}})
	if err != nil {
		return "", err
	}
	if id, err = l.cri.CreateContainer(ctx, sandboxID, plan.Config, sandbox.Config); err != nil {
		return "", err
	}
	return id, l.cri.StartContainer(ctx, id)
}

func (l *lab) removeByHand() {
	for _, s := range l.sandboxes() {
		l.must(l.cri.StopPodSandbox(l.t.Context(), s.Id))
		l.must(l.cri.RemovePodSandbox(l.t.Context(), s.Id))
	}
}
