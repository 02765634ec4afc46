package pressure_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/oom"
	"github.com/nodewright/nodewright/podworker"
)

// kills is a source of kills that the test sends.
type kills chan oom.Kill

func (k kills) Watch(ctx context.Context, on func(oom.Kill)) error {
	for {
		select {
		case kill := <-k:
			on(kill)
		case <-ctx.Done():
			return nil
		}
	}
}

// start runs a part without a kernel log until the test's end.
func start(t *testing.T, h part.Host) kills {
	t.Helper()
	source := make(kills)
	p, err := pressure.NewOOMKills(pressure.OOMKillsConfig{
		Open:     func(bool) (oom.Log, error) { return nil, errors.New("not permitted") },
		Fallback: source,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agenttest.RunPart(t, p))
	return source
}

func pod(name string) *v1.Pod {
	limits := v1.ResourceList{v1.ResourceMemory: resource.MustParse("10Mi")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}},
			Containers:     []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: limits}}},
		},
	}
}

func shows(p *v1.Pod) *observed.Pod {
	return &observed.Pod{UID: p.UID, Containers: []observed.Container{{ID: "id-c", Name: "c"}, {ID: "id-init", Name: "init"}}}
}

func TestKillsBecomeEvents(t *testing.T) {
	for _, tc := range []struct {
		name string
		kill oom.Kill
		want []string
	}{
		{"limit of a container", oom.Kill{PodUID: "uid-web", ContainerID: "id-c", Process: "app", PID: 77, Cgroup: "/pods/web/c"}, []string{
			"event default/web Warning OOMKilling: Process app in container c of pod web was killed by the kernel: a memory limit was reached (the container's is 10Mi)",
			"resync uid-web",
		}},
		{"container without a limit", oom.Kill{PodUID: "uid-web", ContainerID: "id-init", Process: "app", Cgroup: "/pods/web/init"}, []string{
			"event default/web Warning OOMKilling: Process app in container init of pod web was killed by the kernel: a memory limit was reached",
			"resync uid-web",
		}},
		{"by a counter", oom.Kill{PodUID: "uid-web", Cgroup: "/pods/web"}, []string{
			"event default/web Warning OOMKilling: A process in pod web was killed by the kernel: a memory limit was reached",
			"resync uid-web",
		}},
		{"of a pod, the node's memory", oom.Kill{Node: true, PodUID: "uid-web", ContainerID: "id-c", Process: "app", PID: 77, Cgroup: "/pods/web/c"}, []string{
			"node event Warning SystemOOM: System OOM encountered, victim process: app, pid: 77, in pod default/web",
			"event default/web Warning OOMKilling: Process app in container c of pod web was killed by the kernel: the node had no memory left",
			"resync uid-web",
		}},
		{"of the node", oom.Kill{Node: true, Process: "sshd", PID: 5, Cgroup: "/"}, []string{
			"node event Warning SystemOOM: System OOM encountered, victim process: sshd, pid: 5",
		}},
		{"of a pod that is ending", oom.Kill{PodUID: "uid-old", ContainerID: "unknown", Process: "app", Cgroup: "/pods/old/c"}, []string{
			"event default/old Warning OOMKilling: Process app in pod old was killed by the kernel: a memory limit was reached",
			"resync uid-old",
		}},
		{"of nobody", oom.Kill{Process: "cron", Cgroup: "/system.slice"}, nil},
		{"of an unknown pod", oom.Kill{PodUID: "uid-gone", Cgroup: "/pods/gone"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := agenttest.NewHost(t)
				h.SetPods(pod("web"))
				h.SetObserved(shows(pod("web")))
				h.SetWorker(podworker.Status{UID: "uid-old", Pod: pod("old"), Kind: podworker.Terminating})
				tc.kill.Count = 1
				start(t, h) <- tc.kill
				synctest.Wait()
				if got := h.Calls(); !slices.Equal(got, tc.want) {
					t.Errorf("asked the host for\n%q, want\n%q", got, tc.want)
				}
			})
		})
	}
}

// blind is a host whose runtime does not answer.
type blind struct{ *agenttest.Host }

func (blind) Observe(ctx context.Context, _ types.UID) (*observed.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A runtime that hangs holds up the report of a kill for 2 s, and Run not at
// all.
func TestRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := agenttest.NewHost(t)
		h.SetPods(pod("web"), pod("db"))
		source, began := start(t, blind{h}), time.Now()
		source <- oom.Kill{PodUID: "uid-web", ContainerID: "id-c", Count: 1}
		source <- oom.Kill{PodUID: "uid-db", Count: 1}
		synctest.Wait()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the second kill was taken after %v", took)
		}
		if got := h.Calls(); len(got) != 4 || got[1] != "resync uid-web" || got[3] != "resync uid-db" {
			t.Errorf("asked the host for %q", got)
		}
		source <- oom.Kill{PodUID: "uid-web", ContainerID: "id-c", Count: 1} // and the test ends
	})
}

func TestConfigAndJoin(t *testing.T) {
	reg := prometheus.NewRegistry()
	p, err := pressure.NewOOMKills(pressure.OOMKillsConfig{Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pressure.NewOOMKills(pressure.OOMKillsConfig{Metrics: reg}); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
	h := agenttest.NewHost(t)
	if err := p.Join(h); err != nil {
		t.Error(err)
	}
	if err := p.Join(h); err == nil {
		t.Error("joined twice")
	}
	if p.Name() != "oom" {
		t.Errorf("name %s", p.Name())
	}
}
