package cgroups_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

// What the kernel does, and the tree in memory has to do alike.
func testFS(t *testing.T, f cgroups.FS, at string, v cgroups.Version) {
	value := func(file string) string {
		data, err := f.Read(path.Join(at, file))
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(data))
	}
	if _, err := f.Read(at + "/cgroup.procs"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it is made: %v", err)
	}
	ok(t, f.Mkdir(at))
	if err := f.Mkdir(at); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	if err := f.Mkdir(at + "/a/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made below nothing: %v", err)
	}
	ok(t, f.Mkdir(at+"/child"))
	if dirs, err := f.Dirs(at); err != nil || !slices.Equal(dirs, []string{"child"}) {
		t.Errorf("Dirs = %q, %v", dirs, err)
	}
	if err := f.Rmdir(at); !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("removed with a child: %v", err)
	}
	type try struct {
		file, write, reads string
		err                error
	}
	tries := []try{
		{"memory.limit_in_bytes", "1000000001", "999997440", nil},
		{"memory.limit_in_bytes", "-1", "9223372036854771712", nil},
		{"memory.limit_in_bytes", "x", "9223372036854771712", syscall.EINVAL},
		{"memory.none", "1", "", fs.ErrNotExist},
	}
	if v == cgroups.V2 {
		tries = []try{
			{"cpu.weight", "39", "39", nil}, {"cpu.weight", "0", "39", syscall.ERANGE}, {"cpu.weight", "10001", "39", syscall.ERANGE},
			{"cpu.max", "20000 100000", "20000 100000", nil}, {"cpu.max", "max 100000", "max 100000", nil}, {"cpu.max", "5 100000", "max 100000", syscall.EINVAL},
			{"memory.max", "1000000001", "999997440", nil}, {"memory.max", "max", "max", nil}, {"memory.max", "x", "max", syscall.EINVAL},
			{"memory.none", "1", "", fs.ErrNotExist},
		}
	}
	for _, tc := range tries {
		err := f.Write(path.Join(at, tc.file), tc.write)
		if !errors.Is(err, tc.err) {
			t.Errorf("%q into %s: %v, want %v", tc.write, tc.file, err, tc.err)
		}
		if got := value(tc.file); tc.reads != "" && got != tc.reads {
			t.Errorf("after %q, %s is %q, want %q", tc.write, tc.file, got, tc.reads)
		}
	}
	ok(t, f.Rmdir(at+"/child"))
	ok(t, f.Rmdir(at))
	if err := f.Rmdir(at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestTreeActsAsTheKernel(t *testing.T) {
	name := fmt.Sprintf("nwcg-fs-%d", os.Getpid())
	v1 := cgroupstest.NewTree(cgroups.V1)
	testFS(t, v1, cgroupstest.Mount+"/memory/"+name, cgroups.V1)
	v2 := cgroupstest.NewTree(cgroups.V2)
	ok(t, v2.Write(cgroupstest.Mount+"/cgroup.subtree_control", "+cpu +memory"))
	testFS(t, v2, cgroupstest.Mount+"/"+name, cgroups.V2)
}

// TestRealKernel runs the suite on this machine.
func TestRealKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes cgroups: needs root")
	}
	name := fmt.Sprintf("nwcg-fs-%d", os.Getpid())
	remove := func(dir string) {
		for _, d := range []string{dir + "/child", dir} {
			_ = cgroups.OS.Rmdir(d) // they went, unless the test failed
		}
	}
	if _, err := os.Stat(cgroupstest.Mount + "/memory/memory.limit_in_bytes"); err == nil {
		dir := cgroupstest.Mount + "/memory/" + name
		defer remove(dir)
		testFS(t, cgroups.OS, dir, cgroups.V1)
		return
	}
	has, err := os.ReadFile(cgroupstest.Mount + "/cgroup.subtree_control")
	if err != nil || !strings.Contains(string(has), "cpu") || !strings.Contains(string(has), "memory") {
		t.Skipf("the root of cgroup v2 hands down %q, and not cpu and memory: %v", has, err)
	}
	dir := cgroupstest.Mount + "/" + name
	defer remove(dir)
	testFS(t, cgroups.OS, dir, cgroups.V2)
}
