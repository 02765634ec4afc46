package kerneltest_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/node/kerneltest"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/numa"
)

func Example() {
	m := kerneltest.Machine("v1")
	m.Set("proc/meminfo", "MemTotal: 4194304 kB\n")
	facts, err := status.System{Files: m}.Facts(context.Background())
	fmt.Println(facts.Capacity.Memory(), facts.Capacity.Cpu(), err)
	// Output: 4Gi 2 <nil>
}

// answers are what this module reads of a machine; "" is what is not known.
func answers(ctx context.Context, root fs.FS) map[string]string {
	out := map[string]string{}
	if f, err := (status.System{Files: root}).Facts(ctx); err == nil {
		out["memory"], out["cpus"], out["kernel"] = f.Capacity.Memory().String(), f.Capacity.Cpu().String(), f.Kernel
		out["huge pages"] = f.Capacity.Name(v1.ResourceHugePagesPrefix+"2Mi", "").String()
	}
	if m, err := numa.ReadSysfs(root); err == nil {
		out["numa"] = fmt.Sprint(len(m.CPUs), len(m.Nodes), m.Nodes[0].Memory)
	}
	r := kernel.At(root)
	for _, dir := range []string{"/", "/kubepods"} {
		_, _ = kernel.ReadGroup(ctx, r, dir, func(g *kernel.Group) (struct{}, error) {
			memory, cpu := g.MemoryUsage(), g.CPU()
			out[dir] = fmt.Sprint(memory, cpu.Total, g.Threads(), g.IO(), g.Pressure("memory") != nil)
			return struct{}{}, nil
		})
	}
	return out
}

// What a file says is believed, or is missing: whatever happens to one file, what others say stays as it is.
func TestEachFileAlone(t *testing.T) {
	for _, name := range kerneltest.Machines() {
		intact := answers(t.Context(), kerneltest.Machine(name))
		if intact["memory"] == "" || intact["numa"] == "" {
			t.Fatalf("%s: %v", name, intact)
		}
		for _, file := range kerneltest.Machine(name).Files() {
			for what, do := range map[string]func(*kerneltest.Tree){
				"removed": func(m *kerneltest.Tree) { m.Remove(file) },
				"ended":   func(m *kerneltest.Tree) { m.Fail(file, syscall.ENODEV) },
				"broken":  func(m *kerneltest.Tree) { m.Fail(file, syscall.EIO) },
				"empty":   func(m *kerneltest.Tree) { m.Set(file, "") },
				"garbled": func(m *kerneltest.Tree) { m.Set(file, "\x00\xff18446744073709551616 -1 nan\n: \n") },
				"long":    func(m *kerneltest.Tree) { m.Set(file, strings.Repeat("9", 2<<20)) },
			} {
				m := kerneltest.Machine(name)
				do(m)
				got := answers(t.Context(), m)
				if file != "proc/meminfo" && got["memory"] != "" && got["memory"] != intact["memory"] {
					t.Errorf("%s: %s is %s: memory %s, want %s", name, file, what, got["memory"], intact["memory"])
				}
				if file != "sys/devices/system/cpu/online" && got["cpus"] != "" && got["cpus"] != intact["cpus"] {
					t.Errorf("%s: %s is %s: CPUs %s, want %s", name, file, what, got["cpus"], intact["cpus"])
				}
				if strings.HasPrefix(file, "sys/fs/cgroup") && got["numa"] != intact["numa"] {
					t.Errorf("%s: %s is %s: NUMA %s, want %s", name, file, what, got["numa"], intact["numa"])
				}
			}
		}
	}
}

// A file that hangs costs what it says, and no more than the limit of one read.
func TestEachFileHangs(t *testing.T) {
	for _, name := range kerneltest.Machines() {
		for _, file := range []string{"proc/meminfo", "sys/devices/system/cpu/online", "sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/memory/memory.stat"} {
			synctest.Test(t, func(t *testing.T) {
				m := kerneltest.Machine(name)
				release := m.Hang(file)
				defer release()
				begin := time.Now()
				f, err := status.System{Files: m}.Facts(t.Context())
				if strings.HasPrefix(file, "sys/fs") == (err != nil) {
					t.Errorf("%s: %s hangs: %+v, %v", name, file, f.Capacity, err)
				}
				_, err = kernel.ReadGroup(t.Context(), kernel.At(m), "/", func(g *kernel.Group) (kernel.CPU, error) { g.Memory(); return g.CPU(), g.Err() })
				if took := time.Since(begin); took > 10*time.Second || err == nil == (took >= 5*time.Second && strings.HasPrefix(file, "sys/fs")) {
					t.Errorf("%s: %s hangs: %v, %v", name, file, err, took)
				}
			})
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	if f, err := z.Create("proc/meminfo"); err != nil {
		t.Fatal(err)
	} else if _, err = f.Write([]byte("MemTotal: 1 kB\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err := kerneltest.Open(b.Bytes()); err != nil || len(m.Files()) != 1 {
		t.Errorf("%v, %v", m, err)
	}
	for _, bad := range [][]byte{nil, []byte("x"), b.Bytes()[:b.Len()-1]} {
		if _, err := kerneltest.Open(bad); err == nil || !strings.Contains(err.Error(), "recorded machine") {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}
