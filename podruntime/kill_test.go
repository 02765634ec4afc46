package podruntime

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/podlife"
)

func TestGracePeriodOfAnOrphan(t *testing.T) {
	for _, tc := range []struct {
		deletion, termination string
		want                  time.Duration
	}{
		{"", "", podlife.DefaultGrace},
		{"", "20", 20 * time.Second},
		{"5", "20", 5 * time.Second},
		{"x", "20", 20 * time.Second},
		{"9223372037", "", seconds.Max},
		{"", "9223372036854775807", seconds.Max},
	} {
		o := &observed.Container{Annotations: map[string]string{
			cri.AnnotationPodDeletionGracePeriod: tc.deletion, cri.AnnotationPodTerminationGracePeriod: tc.termination,
		}}
		if got := podlife.Grace(restoredPod(o), restored(o), podlife.Cause{}); got != tc.want {
			t.Errorf("without a spec, annotations %q and %q: %v, want %v", tc.deletion, tc.termination, got, tc.want)
		}
	}
}

// stage is a pod that runs on the fake runtime, in virtual time.
type stage struct {
	rt  *critest.Runtime
	m   *Manager
	pod *v1.Pod
	log *events
}

// newStage runs a pod: each container ends delay seconds after TERM, by its
// name's entry in delays.
func newStage(t *testing.T, init []string, delays map[string]string, names ...string) *stage {
	t.Helper()
	s := &stage{rt: critest.New(), log: &events{}}
	s.rt.AddImage("img")
	var err error
	if s.m, err = New(Config{Runtime: s.rt, Images: present{}, PodLogsDir: t.TempDir(), Events: s.log}); err != nil {
		t.Fatal(err)
	}
	w := build(v1.RestartPolicyAlways, init, names...)
	w.pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	for _, list := range [][]v1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			list[i].Args = []string{"trap", "0", delays[list[i].Name], "sleep", "forever"}
		}
	}
	s.pod = w.pod
	for range len(init) + 1 { // a sidecar has started once it is seen to run
		mustSync(t, s.m, request(t, w, s.look(t)))
	}
	s.rt.ForgetCalls()
	return s
}

func (s *stage) look(t *testing.T) *observed.Pod {
	t.Helper()
	obs, err := cri.NewReader(s.rt).Inspect(t.Context(), s.pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return obs
}

// kill ends the pod and says when, in seconds, the stop of each container
// was called.
func (s *stage) kill(t *testing.T, grace *int64) (stops string, took time.Duration) {
	t.Helper()
	obs, start := s.look(t), time.Now()
	if err := s.m.Kill(t.Context(), s.pod, obs, grace); err != nil {
		t.Errorf("kill: %v", err)
	}
	took = time.Since(start)
	var parts []string
	for _, c := range s.rt.Calls("StopContainer") {
		for _, o := range obs.Containers {
			if o.ID == c.Target {
				parts = append(parts, fmt.Sprintf("%s@%d", o.Name, int(c.At.Sub(start).Seconds())))
			}
		}
	}
	if got := s.look(t); got.Runs() != observed.No {
		t.Error("something runs after Kill")
	}
	return strings.Join(parts, " "), took
}

func TestEndOfAPodWithSidecars(t *testing.T) {
	for _, tc := range []struct {
		name   string
		delays map[string]string
		grace  *int64
		stops  string
		took   time.Duration
	}{
		{"in reverse order", map[string]string{"s1": "1s", "s2": "2s", "s3": "3s", "main": "4s"}, nil,
			"main@0 s3@4 s2@7 s1@9", 10 * time.Second},
		{"no longer than the grace period", map[string]string{"s1": "1s", "s2": "1s", "s3": "1s", "main": "1h"}, ptr.To[int64](10),
			"main@0 s1@10 s2@10 s3@10", 11 * time.Second},
		{"without waiting", map[string]string{"s1": "1s", "s2": "1s", "s3": "1s", "main": "1s"}, ptr.To[int64](0),
			"main@0 s1@0 s2@0 s3@0", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, []string{"s1*", "s2*", "s3*"}, tc.delays, "main")
			stops, took := s.kill(t, tc.grace)
			fields := strings.Fields(stops)
			if tc.grace != nil { // of those that stop at one moment any may be first
				slices.Sort(fields)
			}
			if got := strings.Join(fields, " "); got != tc.stops || took != tc.took {
				t.Errorf("%s: %s in %v, want %s in %v", tc.name, got, took, tc.stops, tc.took)
			}
		})
	}
}

// One container that cannot be killed does not keep the others from ending,
// and the pod is not said to have ended.
func TestKillGoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, []string{"side*"}, map[string]string{"side": "1s", "a": "1s", "b": "1s"}, "a", "b")
		var stubborn string
		obs := s.look(t)
		for _, c := range obs.Containers {
			if c.Name == "a" {
				stubborn = c.ID
			}
		}
		s.rt.Around(func(c critest.Call) error {
			if c.Method == "StopContainer" && c.Target == stubborn || c.Method == "StopPodSandbox" {
				return fmt.Errorf("cannot stop %s", c.Target)
			}
			return nil
		}, nil)
		start := time.Now()
		err := s.m.Kill(t.Context(), s.pod, obs, nil)
		if err == nil || !strings.Contains(err.Error(), "stop container a") || strings.Contains(err.Error(), "stop sandbox") {
			t.Errorf("Kill: %v, want an error of container a: its sandbox would end it before its time", err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v, want 2s: the sidecar does not wait for what cannot be stopped", took)
		}
		for _, c := range s.look(t).Containers {
			if want := c.Name == "a"; (c.State == observed.Running) != want {
				t.Errorf("container %s is %v", c.Name, c.State)
			}
		}
		time.Sleep(time.Duration(*s.pod.Spec.TerminationGracePeriodSeconds) * time.Second)
		err = s.m.Kill(t.Context(), s.pod, s.look(t), nil)
		if err == nil || !strings.Contains(err.Error(), "stop container a") || !strings.Contains(err.Error(), "stop sandbox") {
			t.Errorf("Kill: %v, want an error of container a and of the sandbox when its time is over", err)
		}
	})
}

// A runtime that is away when a pod is to end has told nobody of that: the grace period
// begins when it is back.
func TestAwayRuntimeTakesNoGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, nil, "a")
		obs := s.look(t)
		fault := status.Error(codes.Unavailable, "connection refused")
		s.rt.Around(func(c critest.Call) error {
			if c.Method == "StopContainer" {
				return fault
			}
			return nil
		}, nil)
		grace := time.Duration(*s.pod.Spec.TerminationGracePeriodSeconds) * time.Second
		for _, next := range []error{status.Error(codes.Unknown, "busy"), fault, fault} {
			if err := s.m.Kill(t.Context(), s.pod, obs, nil); err == nil || strings.Contains(err.Error(), "stop sandbox") {
				t.Errorf("Kill: %v", err)
			}
			if obs = s.look(t); !slices.ContainsFunc(obs.Containers, func(c observed.Container) bool { return c.State == observed.Running }) {
				t.Fatal("the container was ended with its sandbox")
			}
			fault = next
			time.Sleep(grace - time.Second)
		}
		if err := s.m.Kill(t.Context(), s.pod, obs, nil); err == nil {
			t.Error("no error")
		}
		for _, c := range s.look(t).Containers {
			if c.State == observed.Running {
				t.Error("the container runs after the grace period of the first call that the runtime heard")
			}
		}
	})
}

// A container's number goes on from what the runtime has of it, and else from
// the logs that are left.
func TestRestartCount(t *testing.T) {
	for _, tc := range []struct {
		name string
		last *observed.Container
		logs []string
		want int32
	}{
		{"first", nil, nil, 0},
		{"after one", &observed.Container{State: observed.Exited, RestartCount: 4}, nil, 5},
		{"never started", &observed.Container{State: observed.Created, RestartCount: 4}, nil, 4},
		{"from logs", nil, []string{"0.log", "2.log", "1.log.20260101-000000.gz"}, 3},
		{"from rotated logs", nil, []string{"6.log.20260101-000000"}, 7},
		{"the last number there is", nil, []string{"2147483647.log"}, math.MaxInt32},
		{"after the last number there is", &observed.Container{State: observed.Exited, RestartCount: math.MaxInt32}, nil, math.MaxInt32},
		{"other files", nil, []string{"x.log", "-1.log", "7.txt", "8", "99999999999.log"}, 0},
	} {
		w := build(v1.RestartPolicyAlways, nil, "c")
		m := manager(t, newMemory())
		in := request(t, w, nil).Spec
		for _, l := range tc.logs {
			put(t, filepath.Join(m.cfg.PodLogsDir, "ns_pod_u", "c", l), "")
		}
		if got, err := m.restartCount(t.Context(), in, &w.pod.Spec.Containers[0], tc.last); got != tc.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", tc.name, got, err, tc.want)
		}
	}
}
