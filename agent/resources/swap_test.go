package resources_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/podspec"
)

const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"

// machine has some files; those without content are directories' only.
func machine(files ...string) fstest.MapFS {
	m := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 1024 kB\nSwapTotal:      2048 kB\nSwapFree: 0 kB\n")}}
	for i := 0; i < len(files); i += 2 {
		m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return m
}

const (
	v2    = "sys/fs/cgroup/cgroup.controllers"
	on    = heading + "/dev/sda2                               partition\t2097148\t0\t-2\n"
	below = "sys/fs/cgroup/system.slice/memory.swap.max"
)

// A machine with swap is refused by the names of what is swapped to, unless it is
// allowed; one without never is.
func TestSwapIsRefusedByName(t *testing.T) {
	many := heading + strings.Repeat("/swap\\040file file 1 0 -2\n", 20)
	for _, tc := range []struct {
		name    string
		swaps   string // "-": there is no such file
		allowed bool
		want    []string // in the error; none: there is no error
	}{
		{"no swap in the kernel", "-", false, nil},
		{"no swap", heading, false, nil},
		{"a partition", on, false, []string{"failSwapOn: true", "/dev/sda2 (partition)", "failSwapOn: false"}},
		{"many files", many, false, []string{`/swap\040file (file)`, "and more"}},
		{"allowed", on, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := machine("proc/swaps", tc.swaps)
			if tc.swaps == "-" {
				delete(m, "proc/swaps")
			}
			_, err := resources.NewSwap(resources.SwapConfig{Allowed: tc.allowed, Files: m})
			if (err == nil) != (len(tc.want) == 0) || err != nil && !errors.Is(err, resources.ErrSwapOn) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %q", want, err)
				}
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// The runtime is told of swap where cgroups limit it, and only there.
func TestWhereSwapIsLimited(t *testing.T) {
	for _, tc := range []struct {
		name    string
		files   []string
		limited bool
		want    *podspec.Swap
	}{
		{"v2, own cgroup", []string{v2, "memory", "proc/self/cgroup", "0::/agent.slice\n", "sys/fs/cgroup/agent.slice/memory.swap.max", "max"}, false, &podspec.Swap{Capacity: 2 << 20}},
		{"v2, a share", []string{v2, "memory", below, "max"}, true, &podspec.Swap{Capacity: 2 << 20, Limited: true}},
		{"v2, in the root", []string{v2, "memory", "proc/self/cgroup", "0::/\n", below, "max"}, false, &podspec.Swap{Capacity: 2 << 20}},
		{"v2, a path out of the cgroups", []string{v2, "memory", "proc/self/cgroup", "0::/../../../x\n", "x/memory.swap.max", "max"}, false, nil},
		{"v2 without accounting", []string{v2, "memory", "proc/self/cgroup", "0::/agent.slice\n", "sys/fs/cgroup/agent.slice/memory.max", "max"}, false, nil},
		{"v1", []string{"sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "1"}, false, &podspec.Swap{Capacity: 2 << 20}},
		{"v1 without accounting", []string{"sys/fs/cgroup/memory/memory.limit_in_bytes", "1"}, false, nil},
		{"no cgroups", nil, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := resources.NewSwap(resources.SwapConfig{Allowed: true, Limited: tc.limited, Files: machine(append([]string{"proc/swaps", on}, tc.files...)...)})
			if err != nil {
				t.Fatal(err)
			}
			pod := &v1.Pod{}
			if err := p.Prepare(t.Context(), pod, nil); err != nil {
				t.Fatal(err)
			}
			var in podspec.Input
			if err := p.Compile(pod, &in); err != nil {
				t.Fatal(err)
			}
			if got := in.Node.Swap; (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("swap is %+v, want %+v", got, tc.want)
			}
		})
	}
}

// A cgroup that limits swap may come after the agent has begun.
func TestCgroupsComeLater(t *testing.T) {
	m := machine(v2, "memory", "proc/swaps", heading)
	p, err := resources.NewSwap(resources.SwapConfig{Files: m})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true} {
		var in podspec.Input
		if err := errors.Join(p.Prepare(t.Context(), nil, nil), p.Compile(nil, &in)); err != nil {
			t.Fatal(err)
		}
		if got := in.Node.Swap != nil; got != want {
			t.Errorf("told of swap: %v, want %v", got, want)
		}
		m[below] = &fstest.MapFile{Data: []byte("max")}
	}
}

// From the part to what the runtime is told: nobody has swap, or a Burstable pod by
// its request.
func TestWhatContainersGet(t *testing.T) {
	for _, tc := range []struct {
		limited bool
		want    string
	}{{false, "0"}, {true, "1048576"}} {
		p, err := resources.NewSwap(resources.SwapConfig{Allowed: true, Limited: tc.limited, Files: machine("proc/swaps", on, v2, "memory", below, "max")})
		if err != nil {
			t.Fatal(err)
		}
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("512Ki")},
		}}}}}
		in := podspec.Input{Pod: pod, Node: podspec.Node{CgroupV2: true, Capacity: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}}}
		if err := errors.Join(p.Prepare(t.Context(), pod, nil), p.Compile(pod, &in)); err != nil {
			t.Fatal(err)
		}
		r := podspec.Resources(in, &pod.Spec.Containers[0], pod.Spec.Containers[0].Resources)
		if got := r.GetUnified()["memory.swap.max"]; got != tc.want {
			t.Errorf("limited %v: %s bytes of swap, want %s", tc.limited, got, tc.want)
		}
	}
}

// The node has an event where volumes in memory may be swapped out, and not
// otherwise.
func TestVolumesInMemoryMayBeOnDisk(t *testing.T) {
	for _, tc := range []struct {
		name  string
		swaps string
		kept  bool // volumes are kept off swap
		want  bool
	}{{"swap", on, false, true}, {"kept off it", on, true, false}, {"no swap", heading, false, false}} {
		core, logs := observer.New(zap.WarnLevel)
		p, err := resources.NewSwap(resources.SwapConfig{
			Allowed: true, Limited: true, Files: machine("proc/swaps", tc.swaps), NoSwapVolumes: func() bool { return tc.kept }, Log: zap.New(core),
		})
		if err != nil {
			t.Fatal(err)
		}
		h := agenttest.NewHost(t)
		if err := p.Join(h); err != nil {
			t.Fatal(err)
		}
		if err := p.Join(h); err == nil {
			t.Error("one part joined twice")
		}
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		told := slices.ContainsFunc(h.Calls(), func(s string) bool { return strings.Contains(s, "PossibleMemoryBackedVolumesOnDisk") })
		if told != tc.want {
			t.Errorf("%s: an event: %v, want %v", tc.name, told, tc.want)
		}
		if logs.Len() != 1 {
			t.Errorf("%s: %d lines about cgroup v1, want one", tc.name, logs.Len())
		}
	}
}

// Whatever the files of a machine are, New answers.
func FuzzMachine(f *testing.F) {
	f.Add(on, "SwapTotal: 12 kB\n")
	f.Add(heading, "")
	f.Add("\n\n\x00", "SwapTotal: 99999999999999999999 kB")
	f.Fuzz(func(t *testing.T, swaps, meminfo string) {
		p, err := resources.NewSwap(resources.SwapConfig{Files: fstest.MapFS{"proc/swaps": {Data: []byte(swaps)}, "proc/meminfo": {Data: []byte(meminfo)}}})
		if (p == nil) != (err != nil) || err != nil && !errors.Is(err, resources.ErrSwapOn) {
			t.Errorf("%v, %v", p, err)
		}
	})
}
