package numa_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nodewright/nodewright/numa"
)

var update = flag.Bool("update", false, "write what is read into the files of testdata")

// describe summarizes a machine in a few lines.
func describe(m numa.Machine) string {
	var b strings.Builder
	group := func(what string, of func(numa.CPU) int) {
		by := map[int][]int{}
		for _, c := range m.CPUs {
			by[of(c)] = append(by[of(c)], c.ID)
		}
		for _, k := range slices.Sorted(maps.Keys(by)) {
			fmt.Fprintf(&b, "%s %d: CPUs %s\n", what, k, numa.CPUs(by[k]...))
		}
	}
	threads := map[int][]int{}
	for _, c := range m.CPUs {
		threads[c.Core] = append(threads[c.Core], c.ID-c.Core)
	}
	cores := map[string][]int{}
	for core, offsets := range threads {
		k := strings.Trim(fmt.Sprint(offsets), "[]")
		cores[k] = append(cores[k], core)
	}
	for _, k := range slices.Sorted(maps.Keys(cores)) {
		fmt.Fprintf(&b, "cores of CPUs +%s: %s\n", strings.ReplaceAll(k, " ", " and +"), numa.CPUs(cores[k]...))
	}
	group("cache", func(c numa.CPU) int { return c.Cache })
	group("socket", func(c numa.CPU) int { return c.Socket })
	for _, n := range m.Nodes {
		fmt.Fprintf(&b, "node %d: CPUs %q, %d MiB", n.ID, m.CPUsOf(numa.Nodes(n.ID)), n.Memory>>20)
		for _, size := range slices.Sorted(maps.Keys(n.HugePages)) {
			fmt.Fprintf(&b, ", %d pages of %d KiB", n.HugePages[size], size>>10)
		}
		if n.Distances != nil {
			fmt.Fprintf(&b, ", distances %s", strings.Trim(fmt.Sprint(n.Distances), "[]"))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestMachines(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tree, want, _ := strings.Cut(string(text), "----\n")
			m, err := numa.ReadSysfs(listed(unpack(t, tree)))
			if err != nil {
				t.Fatal(err)
			}
			got := describe(m)
			if *update {
				if err := os.WriteFile(file, []byte(tree+"----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The machine that this runs on is read.
func TestHost(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/cpu/online"); err != nil {
		t.Skip("no sysfs here: ", err)
	}
	m, err := numa.ReadSysfs(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
	if m.Nodes[0].Memory == 0 && len(m.Nodes) == 1 {
		t.Error("a host without memory")
	}
	t.Logf("\n%s", describe(m))
}

// small is a machine of two nodes; tests damage it.
const small = `
cpu/online = 0-3
cpu/cpu{0-2/2}/topology/core_cpus_list = $,$+1
cpu/cpu{1-3/2}/topology/core_cpus_list = $-1,$
cpu/cpu{0-3}/topology/physical_package_id = 0
cpu/cpu{0-3}/cache/index0/level = 1
cpu/cpu{0-3}/cache/index0/type = Data
cpu/cpu{0-3}/cache/index0/shared_cpu_list = $
cpu/cpu{0-3}/cache/index1/level = 1
cpu/cpu{0-3}/cache/index1/type = Instruction
cpu/cpu{0-3}/cache/index1/shared_cpu_list = $
cpu/cpu{0-3}/cache/index3/level = 3
cpu/cpu{0-3}/cache/index3/type = Unified
cpu/cpu{0-3}/cache/index3/shared_cpu_list = 0-3
node/node0/cpulist = 0-1
node/node1/cpulist = 2-3
node/node{0-1}/meminfo = Node $ MemTotal:  1024 kB\nNode $ MemFree: 512 kB
node/node{0-1}/hugepages/hugepages-2048kB/nr_hugepages = 3
node/node0/distance = 10 20
node/node1/distance = 20 10
/proc/meminfo = MemTotal: 2048 kB
`

const gone = "(gone)"

// An error names the file and its content.
func TestDamage(t *testing.T) {
	const sys = "sys/devices/system/"
	for _, tc := range []struct{ file, content, want string }{
		{"cpu/online", gone, "cpu/online: file does not exist"},
		{"cpu/online", "", "cpu/online is empty"},
		{"cpu/online", "0-", `cpu/online: CPU list "0-": "" is not a CPU`},
		{"cpu/online", "0-4", "cpu/cpu4/topology/thread_siblings_list: file does not exist"},
		{"cpu/online", "0-9999", `"9999" is not a CPU`},
		{"cpu/cpu1/topology/core_cpus_list", "2-3", `cpu/cpu1/topology/core_cpus_list is "2-3"; want a list with CPU 1`},
		{"cpu/cpu1/topology/core_cpus_list", "", `cpu/cpu1/topology/core_cpus_list is ""; want a list with CPU 1`},
		{"cpu/cpu1/topology/core_cpus_list", "x", `cpu/cpu1/topology/core_cpus_list: CPU list "x"`},
		{"cpu/cpu2/topology/core_cpus_list", "1-3", "cpu/cpu2/topology: CPU 2 is of the core that begins with CPU 1, which is of the core that begins with CPU 0"},
		{"cpu/cpu1/topology/physical_package_id", "", `cpu/cpu1/topology/physical_package_id is ""; want a number`},
		{"cpu/cpu1/topology/physical_package_id", "4294967296", "want a number"},
		{"cpu/cpu1/topology/physical_package_id", gone, "cpu/cpu1/topology/physical_package_id: file does not exist"},
		{"cpu/cpu3/cache/index3/type", "Cold", `cpu/cpu3/cache/index3/type is "Cold"; want Data, Instruction or Unified`},
		{"cpu/cpu3/cache/index3/level", "L3", `cpu/cpu3/cache/index3/level is "L3"; want a number`},
		{"cpu/cpu3/cache/index3/shared_cpu_list", "0-2", `cpu/cpu3/cache/index3/shared_cpu_list is "0-2"; want a list with CPU 3`},
		{"cpu/cpu3/cache/index3/shared_cpu_list", "3-0", "goes down"},
		{"node/node0/cpulist", gone, "node/node0/cpulist: file does not exist"},
		{"node/node0/cpulist", "0", "node/node*/cpulist: none has CPU 1"},
		{"node/node0/cpulist", "0-2", "node/node1/cpulist has CPU 2, which node 0 has too"},
		{"node/node0/cpulist", "0;1", `node/node0/cpulist: CPU list "0;1"`},
		{"node/node1/meminfo", "Node 1 MemFree: 3 kB", "node/node1/meminfo has no line MemTotal"},
		{"node/node1/meminfo", "Node 1 MemTotal: 3 MB", `node/node1/meminfo: MemTotal: "3 MB"; want a number of kB`},
		{"node/node1/meminfo", "Node 1 MemTotal: 18446744073709551615 kB", "want a number of kB"},
		{"node/node1/meminfo", "", "node/node1/meminfo has no line MemTotal"},
		{"node/node1/hugepages/hugepages-2048kB/nr_hugepages", "-1", `hugepages-2048kB/nr_hugepages: "-1"; want a number of pages`},
		{"node/node1/hugepages/hugepages-2048kB/nr_hugepages", "18446744073709551615", "want a number of pages"},
		{"node/node1/hugepages/hugepages-4kB/other", "", "node/node1/hugepages/hugepages-4kB/nr_hugepages: file does not exist"},
		{"node/node1/distance", "10", "node/node1/distance has 1 distances; want 2, one for each node"},
		{"node/node1/distance", "10 far", `node/node1/distance has "far"; want numbers`},
		{"node/node64/cpulist", "", "node/node64: want numbers from 0 to 63"},
	} {
		tree := unpack(t, small)
		if tc.content == gone {
			delete(tree, sys+tc.file)
		} else {
			tree[sys+tc.file] = &fstest.MapFile{Data: []byte(tc.content)}
		}
		_, err := numa.ReadSysfs(tree)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "sys/devices/system") {
			t.Errorf("%s = %q: %v, want %q", tc.file, tc.content, err, tc.want)
		}
	}
}

// Files that a machine may lack are not required.
func TestLacking(t *testing.T) {
	read := func(change func(fstest.MapFS)) numa.Machine {
		t.Helper()
		tree := unpack(t, small)
		change(tree)
		m, err := numa.ReadSysfs(tree)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	without := func(part string) func(fstest.MapFS) {
		return func(tree fstest.MapFS) {
			maps.DeleteFunc(tree, func(name string, _ *fstest.MapFile) bool { return strings.Contains(name, part) })
		}
	}
	if m := read(without("/cache/")); m.CPUs[3].Cache != 0 {
		t.Errorf("without caches, those of a socket share one: %v", m.CPUs)
	}
	if m := read(without("/index3/type")); m.CPUs[3].Cache != 3 {
		t.Errorf("a cache of unknown kind does not count: %v", m.CPUs)
	}
	if m := read(without("/index3/level")); m.CPUs[3].Cache != 3 {
		t.Errorf("a cache of unknown level does not count: %v", m.CPUs)
	}
	if m := read(without("/index3/shared_cpu_list")); m.CPUs[3].Cache != 3 {
		t.Errorf("a cache of unknown users does not count: %v", m.CPUs)
	}
	if m := read(without("/hugepages/")); m.Nodes[0].HugePages != nil {
		t.Errorf("%v", m.Nodes)
	}
	if m := read(without("/distance")); m.Nodes[0].Distances != nil {
		t.Errorf("%v", m.Nodes)
	}
	if m := read(without("/node/")); len(m.Nodes) != 1 || m.Nodes[0].Memory != 2<<20 || m.CPUs[3].Node != 0 {
		t.Errorf("without NUMA: %v", m)
	}
	if m := read(func(tree fstest.MapFS) {
		tree["sys/devices/system/cpu/cpu0/topology/physical_package_id"].Data = []byte("-1\n")
	}); m.CPUs[0].Socket != 0 {
		t.Errorf("%v", m.CPUs)
	}
	if m := read(func(tree fstest.MapFS) { // Linux before 5.3
		for _, name := range slices.Collect(maps.Keys(tree)) {
			if dir, ok := strings.CutSuffix(name, "core_cpus_list"); ok {
				tree[dir+"thread_siblings_list"] = tree[name]
				delete(tree, name)
			}
		}
	}); m.CPUs[1].Core != 0 {
		t.Errorf("%v", m.CPUs)
	}
	_, err := numa.ReadSysfs(fstest.MapFS{})
	if err == nil || !strings.Contains(err.Error(), "sys/devices/system/cpu/online: file does not exist") {
		t.Errorf("%v", err)
	}
}

// unreadable fails to read one file or directory, as a kernel may.
type unreadable struct {
	fs.FS
	name string
}

func (u unreadable) Open(name string) (fs.File, error) {
	if name == u.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return u.FS.Open(name)
}

// No file of the machine can fail unnoticed.
func TestUnreadable(t *testing.T) {
	tree := unpack(t, small)
	for name := range tree {
		if strings.HasPrefix(name, "proc/") || strings.Contains(name, "/index1/") && !strings.HasSuffix(name, "/type") {
			continue // not looked at
		}
		if _, err := numa.ReadSysfs(unreadable{tree, name}); err == nil || !strings.Contains(err.Error(), name+": permission denied") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, dir := range []string{"sys/devices/system/node", "sys/devices/system/cpu/cpu1/cache", "sys/devices/system/node/node0/hugepages"} {
		if _, err := numa.ReadSysfs(unreadable{tree, dir}); err == nil || !strings.Contains(err.Error(), dir+": permission denied") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// For any content of the files, the result is a valid machine or an error.
func FuzzRead(f *testing.F) {
	tree := unpack(f, small)
	names := slices.Sorted(maps.Keys(tree))
	for i := range names {
		f.Add(uint8(i), uint8(i+1), "0-3", "Node 0 MemTotal: 1 kB")
		f.Add(uint8(i), uint8(0), "", "0-1")
	}
	f.Fuzz(func(t *testing.T, a, b uint8, first, second string) {
		tree := maps.Clone(tree)
		for i, content := range map[uint8]string{a: first, b: second} {
			name := names[int(i)%len(names)]
			if content == gone {
				delete(tree, name)
			} else {
				tree[name] = &fstest.MapFile{Data: []byte(content)}
			}
		}
		m, err := numa.ReadSysfs(listed(tree))
		if err != nil {
			if !strings.Contains(err.Error(), "sys/devices/system") && !strings.Contains(err.Error(), "proc/meminfo") {
				t.Errorf("%v names no file", err)
			}
			return
		}
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		for _, c := range m.CPUs {
			if c.Core > c.ID || c.Cache < 0 || c.Socket < 0 {
				t.Errorf("%+v", c)
			}
		}
	})
}
