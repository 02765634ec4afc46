package pressure

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/node/stats"
)

// onCgroups returns a part of a machine of files, whose pod u1 runs the container
// app in the cgroup c1.
func onCgroups(t *testing.T) *Stats {
	t.Helper()
	cgroups := fstest.MapFS{"cgroup.controllers": {Data: []byte("cpu memory pids\n")}}
	for dir, bytes := range map[string]int{"kubepods": 700, "kubepods/podu1": 600, "kubepods/podu1/c1": 500, "kubepods/podu1/s1": 10} {
		for name, text := range map[string]string{
			"cpu.stat": "usage_usec 1000\nuser_usec 1\nsystem_usec 1\n", "memory.current": fmt.Sprint(bytes), "memory.max": "max\n",
			"memory.stat": "anon 1\nfile 7\ninactive_file 0\npgfault 7\npgmajfault 2\n", "pids.current": "3\n", "cgroup.procs": "",
		} {
			cgroups[dir+"/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	rt := critest.New()
	p, err := NewStats(StatsConfig{NodeName: "n1", Runtime: rt, Images: rt})
	if err != nil {
		t.Fatal(err)
	}
	p.block, err = stats.New(stats.Config{NodeName: "n1", Runtime: runtime{p}, Cgroups: cgroups, Proc: fstest.MapFS{}})
	if err != nil {
		t.Fatal(err)
	}
	host := agenttest.NewHost(t)
	host.SetObserved(&observed.Pod{
		UID: "u1", Sandboxes: []observed.Sandbox{{ID: "s1", State: observed.Running}},
		Containers: []observed.Container{{ID: "c1", Name: "app", State: observed.Running}},
	})
	if err := p.Join(host); err != nil {
		t.Fatal(err)
	}
	return p
}

// Where pods have cgroups, those are read for evictions, and not the runtime.
func TestFiguresFromCgroups(t *testing.T) {
	p := onCgroups(t)
	got, err := p.ForEviction().Pods(t.Context(), []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}}, eviction.WantMemory)
	if err != nil || got["u1"] == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if u := got["u1"]; u.Memory != 600 || u.Processes != 3 || !slices.EqualFunc(u.Containers, []string{"app 500"}, func(c rank.ContainerUsage, want string) bool {
		return fmt.Sprint(c.Name, " ", c.Memory) == want
	}) {
		t.Errorf("%+v", u)
	}
}

// Details have what cgroups count beside what is in a Summary.
func TestDetailsFromCgroups(t *testing.T) {
	all, err := onCgroups(t).Details()
	if err != nil || len(all) != 1 || len(all[0].Containers) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	c := all[0].Containers[0]
	if c.ID != "c1" || c.Cgroup.Cache == nil || *c.Cgroup.Cache != 7 || all[0].Sandbox.ID != "s1" || all[0].Sandbox.Cgroup.Cache == nil || all[0].Cgroup.Cache == nil {
		t.Errorf("%+v", all[0])
	}
}
