package stats_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// The cgroups above pods and beside them are read with what they use, on either version;
// those that are not there are left out, and so are those of pods and the root.
func TestGroups(t *testing.T) {
	for _, v2 := range []bool{true, false} {
		m := detailed(v2)
		for dir, memory := range map[string]string{
			"kubepods": "900\n", "kubepods/burstable": "700\n", "kubepods/besteffort": "0\n", "kubepods/other": "5\n", "system.slice": "40\n", "runtime.slice": "30\n",
		} {
			if v2 {
				tree(m.cgroups, dir, map[string]string{"memory.current": memory, "cpu.stat": "usage_usec 7\nuser_usec 6\nsystem_usec 1\n", "cgroup.procs": "1\n"})
			} else {
				tree(m.cgroups, "memory/"+dir, map[string]string{"memory.usage_in_bytes": memory, "cgroup.procs": "1\n"})
			}
		}
		m.cfg.SystemCgroups = func() map[string]string {
			return map[string]string{"kubelet": "/system.slice", "runtime": "runtime.slice", "misc": "/gone", "all": "/"}
		}
		groups, err := m.manager(t).Groups()
		var paths []string
		for _, g := range groups {
			paths = append(paths, g.Path)
			if g.Usage == nil || g.Usage.Memory == nil || g.Processes == nil || v2 && *g.Usage.CPU.UsageCoreNanoSeconds != 7000 {
				t.Errorf("v2 %t: %s is %+v", v2, g.Path, g)
			}
		}
		want := "/kubepods /kubepods/besteffort /kubepods/burstable /runtime.slice /system.slice"
		if got := strings.Join(paths, " "); err != nil || got != want || !slices.IsSorted(paths) {
			t.Errorf("v2 %t: %s, %v; want %s", v2, got, err, want)
		}
		if *groups[2].Usage.Memory.UsageBytes != 700 {
			t.Errorf("v2 %t: %+v", v2, groups[2].Usage.Memory)
		}
		m.cfg.PodsCgroup, m.cfg.SystemCgroups = "/gone", nil
		if groups, err := m.manager(t).Groups(); len(groups) > 0 || errors.Is(err, fs.ErrNotExist) || err != nil {
			t.Errorf("v2 %t: %v, %v of a machine without", v2, groups, err)
		}
	}
}
