package oom

import (
	"fmt"
	"reflect"
	"testing"
	"testing/fstest"
	"time"
)

func TestTreeKills(t *testing.T) {
	files := fstest.MapFS{}
	set := func(dir string, kills int) {
		files[dir+"/memory.events"] = &fstest.MapFile{Data: fmt.Appendf(nil, "low 0\nhigh 3\nmax 9\noom 2\noom_kill %d\noom_group_kill 0\n", kills)}
	}
	const root = "kubepods"
	set(root, 3)
	set(root+"/burstable", 3)
	set(root+"/burstable/poda", 3)
	set(root+"/burstable/poda/c1", 3)
	set(root+"/podb", 0)
	set(root+"/podb/c2", 0)
	now := time.Now()
	tr := tree{files: files, root: root}
	expect := func(name string, want ...Kill) {
		t.Helper()
		for i := range want {
			want[i].At = now
		}
		got, err := tr.kills(now)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, %v; want\n%+v", name, got, err, want)
		}
	}
	expect("what was before")
	expect("nothing new")

	set(root, 5)
	set(root+"/podb", 2)
	set(root+"/podb/c2", 2)
	expect("two at once", Kill{Cgroup: "/kubepods/podb/c2", PodUID: "b", ContainerID: "c2", Count: 2})
	expect("told once")

	set(root, 6)
	set(root+"/burstable", 4)
	set(root+"/burstable/poda", 4)
	delete(files, root+"/burstable/poda/c1/memory.events")
	expect("its cgroup is gone", Kill{Cgroup: "/kubepods/burstable/poda", PodUID: "a", Count: 1})

	set(root, 7)
	set(root+"/podc", 1)
	set(root+"/podc/new", 1)
	expect("a new one", Kill{Cgroup: "/kubepods/podc/new", PodUID: "c", ContainerID: "new", Count: 1})

	set(root, 8)
	delete(files, root+"/podc/memory.events")
	delete(files, root+"/podc/new/memory.events")
	expect("the whole pod is gone", Kill{Cgroup: "/kubepods", Count: 1})

	set(root, 9)
	set(root+"/podb", 3)
	set(root+"/podb/c2", 3)
	expect("one that rested for long", Kill{Cgroup: "/kubepods/podb/c2", PodUID: "b", ContainerID: "c2", Count: 1})
}
