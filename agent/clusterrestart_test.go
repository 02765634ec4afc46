package agent_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/statusmgr"
)

// unready remembers what is published of pods that are not ready.
type unready struct {
	statusmgr.Sink
	mu   sync.Mutex
	pods []string
}

func (u *unready) Update(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	for _, c := range st.Conditions {
		if c.Type == v1.PodReady && c.Status != v1.ConditionTrue {
			u.mu.Lock()
			u.pods = append(u.pods, pod.Name)
			u.mu.Unlock()
		}
	}
	return u.Sink.Update(ctx, pod, st)
}

func (u *unready) forget() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.pods
	u.pods = nil
	return was
}

// A restart of the agent is no reason to call a pod of a cluster unready, be it
// the cluster's or one that has a mirror there, although no probe has been yet.
func TestReadinessOutlivesARestartInACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNode(t), newCluster()
		n.cluster = c
		probed := func(name string) *v1.Pod {
			p := newPod(name, runs("main"))
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 60, TimeoutSeconds: 60,
			}
			return p
		}
		static, remote := probed("static"), probed("remote")
		n.want, c.pods["remote"] = []*v1.Pod{static}, remote
		sink := &unready{Sink: c}
		n.configure = func(cfg *agent.Config) { cfg.Status.Sink = sink }
		l := n.start()
		time.Sleep(time.Hour)
		started := map[string]*v1.PodStatus{}
		for _, name := range []string{"static", "remote"} {
			st := c.pods[name].Status.DeepCopy()
			started[name] = st
			if len(st.ContainerStatuses) != 1 || !st.ContainerStatuses[0].Ready {
				t.Fatalf("%s is not ready: %+v", name, st)
			}
		}
		l.stop()
		sink.forget()
		n.rt.Delay("ExecSync", 30*time.Second) // until the first probe is over
		l = n.start()
		for range 12 {
			time.Sleep(10 * time.Second)
			for _, p := range l.Pods() {
				if len(p.Status.ContainerStatuses) != 1 || !p.Status.ContainerStatuses[0].Ready {
					t.Errorf("%s is shown as unready: %+v", p.Name, p.Status)
				}
			}
		}
		if was := sink.forget(); len(was) > 0 {
			t.Errorf("published as unready: %v", was)
		}
		for name, before := range started {
			if now := c.pods[name].Status; !now.StartTime.Equal(before.StartTime) {
				t.Errorf("%s started at %v, and at %v after a restart", name, before.StartTime, now.StartTime)
			}
		}
		l.stop()
	})
}
