package podruntime

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// A container whose start lost its caller has not ended: nothing of it ran.
func TestAbandonedStartIsDoneOver(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		for _, init := range [][]string{nil, {"i"}, {"i*"}} {
			r, w := newMemory(), build(policy, init, "a")
			mustSync(t, manager(t, r), request(t, w, r.look()))
			for i := range r.pod.Containers {
				c := &r.pod.Containers[i]
				*c = observed.Container{
					ID: c.ID, Name: c.Name, SandboxID: c.SandboxID, Hash: c.Hash, CreatedAt: c.CreatedAt,
					State: observed.Exited, ExitCode: new(int32(128)), Reason: "StartError", FinishedAt: time.Now(), Abandoned: true,
				}
			}
			mustSync(t, manager(t, r), request(t, w, r.look()))
			for _, c := range r.look().Containers {
				if c.State != observed.Running || c.RestartCount != 0 {
					t.Errorf("policy %s, init %v: container %s is %v with restart count %d, want it to run with 0",
						policy, init, c.Name, c.State, c.RestartCount)
				}
			}
		}
	}
}

// The runtime made a log for the start that it was interrupted at. An agent that
// dies between the container's removal and its replacement leaves no sign of a
// restart.
func TestAbandonedStartLeavesNoLog(t *testing.T) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
	logs := t.TempDir()
	m, err := New(Config{Runtime: r, Images: present{}, PodLogsDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	mustSync(t, m, request(t, w, r.look()))
	log := filepath.Join(podspec.LogDirectory(logs, w.pod), "a", "0.log")
	put(t, log, "")
	r.pod.Containers[0] = observed.Container{
		ID: "x", Name: "a", SandboxID: r.pod.Sandboxes[0].ID, State: observed.Exited, LogPath: log, Abandoned: true,
	}
	r.fail["CreateContainer"] = errDead
	m.Sync(t.Context(), request(t, w, r.look()))
	if n := len(r.look().Containers); n != 0 {
		t.Fatalf("%d containers are left, want none", n)
	}
	delete(r.fail, "CreateContainer")
	if m, err = New(Config{Runtime: r, Images: present{}, PodLogsDir: logs}); err != nil {
		t.Fatal(err)
	}
	mustSync(t, m, request(t, w, r.look()))
	if c := r.look().Containers[0]; c.RestartCount != 0 {
		t.Errorf("restart count %d, want 0", c.RestartCount)
	}
}

// A process that the runtime was interrupted at starting, and has lost sight
// of, keeps it from removing the container.
func TestLostProcessIsReaped(t *testing.T) {
	for _, tc := range []struct {
		name   string
		reaped int // processes that are found
		want   bool
	}{{"found", 1, true}, {"not found", 0, false}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
				var reaped []string
				m, err := New(Config{Runtime: r, Images: present{}, PodLogsDir: t.TempDir(), Reap: func(id string) (int, error) {
					reaped = append(reaped, id)
					time.AfterFunc(3*reapPause-1, func() { // the runtime hears of it a little later
						r.mu.Lock()
						defer r.mu.Unlock()
						delete(r.fail, "RemoveContainer")
						delete(r.fail, "RemovePodSandbox")
					})
					return tc.reaped, nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				mustSync(t, m, request(t, w, r.look()))
				id := r.pod.Containers[0].ID
				refuses := func() {
					r.fail["RemoveContainer"], r.fail["RemovePodSandbox"] = errDead, errDead
					r.pod.Containers[0].State, r.pod.Containers[0].Abandoned, reaped = observed.Exited, true, nil
				}
				refuses()
				res := m.Sync(t.Context(), request(t, w, r.look()))
				if ok := res.Err() == nil; ok != tc.want || !slices.Equal(reaped, []string{id}) {
					t.Errorf("container replaced: %v (%v), reaped %v; want %v, %s", ok, res.Err(), reaped, tc.want, id)
				}
				if !tc.want {
					return
				}
				id = r.pod.Containers[0].ID
				refuses()
				if err := m.Remove(t.Context(), r.look()); err != nil || !slices.Equal(reaped, []string{id}) {
					t.Errorf("pod removed: %v, reaped %v; want %s", err, reaped, id)
				}
			})
		})
	}
}

// A container that the runtime lost at its start and refuses to remove, though
// nothing of it runs, holds up neither its replacement nor the pod's end.
func TestLostContainerIsLeftBehind(t *testing.T) {
	refusal := status.Error(codes.FailedPrecondition, "cannot delete running task")
	for _, tc := range []struct {
		name      string
		err       error
		abandoned bool
		want      bool
	}{
		{"refused", refusal, true, true},
		{"no answer", status.Error(codes.Unavailable, "connection refused"), true, false},
		{"may yet start", refusal, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "a")
			mustSync(t, manager(t, r), request(t, w, r.look()))
			old := &r.pod.Containers[0]
			old.State, old.Abandoned = observed.Created, tc.abandoned
			if tc.abandoned {
				old.State = observed.Exited
			}
			lost := old.ID
			r.fail["RemoveContainer"], r.fail["RemovePodSandbox"] = tc.err, tc.err
			m := manager(t, r)
			res := m.Sync(t.Context(), request(t, w, r.look()))
			if ok := res.Err() == nil; ok != tc.want {
				t.Fatalf("sync: %v, want success: %v", res.Err(), tc.want)
			}
			if err := m.Remove(t.Context(), r.look()); err == nil || errors.Is(err, ErrLeftBehind) != tc.want {
				t.Errorf("removed: %v, want ErrLeftBehind: %v", err, tc.want)
			}
			if !tc.want {
				return
			}
			r.fail["RemovePodSandbox"] = nil
			c := r.look().Newest("a")
			if c.ID == lost || c.State != observed.Running || c.RestartCount != 0 || c.Attempt != 1 {
				t.Errorf("newest is %s, %v, attempt %d, restart count %d; want another one that runs as attempt 1 with count 0", c.ID, c.State, c.Attempt, c.RestartCount)
			}
			delete(r.fail, "RemoveContainer")
			r.pod.Containers[slices.IndexFunc(r.pod.Containers, func(c observed.Container) bool { return c.State == observed.Running })].State = observed.Exited
			mustSync(t, m, request(t, w, r.look()))
			if slices.ContainsFunc(r.look().Containers, func(c observed.Container) bool { return c.ID == lost }) {
				t.Error("the lost container is not removed when the runtime lets go of it")
			}
		})
	}
}

// Who gives up while the runtime makes something lets it finish, but does not
// wait for ever.
func TestInterruptedCallsFinish(t *testing.T) {
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		for _, tc := range []struct {
			takes, want time.Duration // the call; the sync, that is interrupted after a second
			finished    bool
		}{
			{3 * time.Second, 3 * time.Second, true},
			{time.Hour, time.Second + finishing, false},
		} {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New()
				rt.AddImage("img")
				rt.Delay(method, tc.takes)
				log := &events{}
				m, err := New(Config{Runtime: rt, Images: present{}, PodLogsDir: t.TempDir(), Events: log})
				if err != nil {
					t.Fatal(err)
				}
				w := build(v1.RestartPolicyAlways, nil, "a")
				w.pod.Spec.Containers[0].Args = []string{"sleep", "forever"}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				m.Sync(ctx, request(t, w, &observed.Pod{UID: w.pod.UID}))
				if took := time.Since(start); took != tc.want {
					t.Errorf("%s takes %v: Sync returns after %v, want %v", method, tc.takes, took, tc.want)
				}
				pod, err := cri.NewReader(rt).Inspect(t.Context(), w.pod.UID)
				if err != nil {
					t.Fatal(err)
				}
				made := map[string]bool{
					"RunPodSandbox":   len(pod.Sandboxes) == 1,
					"CreateContainer": len(pod.Containers) == 1,
					"StartContainer":  len(pod.Containers) == 1 && pod.Containers[0].State == observed.Running,
				}[method]
				if made != tc.finished {
					t.Errorf("%s takes %v: finished %v, want %v", method, tc.takes, made, tc.finished)
				}
				if len(log.warnings) > 0 {
					t.Errorf("%s takes %v: warnings %v", method, tc.takes, log.warnings)
				}
			})
		}
	}
}

// events keeps the warnings.
type events struct{ warnings []string }

func (e *events) Event(_ *v1.Pod, eventType, reason, message string) {
	if eventType == v1.EventTypeWarning {
		e.warnings = append(e.warnings, reason+": "+message)
	}
}
