package kernel

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func recordedOf(t *testing.T, root fs.FS) *zip.Reader {
	t.Helper()
	var b bytes.Buffer
	if err := Record(t.Context(), root, &b); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// A record has the files that are read, and nothing that names a person or a program.
func TestRecord(t *testing.T) {
	const secret = "zzsecretzz"
	tree := fstest.MapFS{
		"proc/meminfo":                                            file("MemTotal: 1 kB\n"),
		"proc/swaps":                                              file("Filename Type Size Used Priority\n/home/" + secret + "/swap file 1 0 -2\n/dev/sda2 partition 1 0 -3\n"),
		"proc/self/cgroup":                                        file("4:memory:/user.slice/" + secret + "\n0::/user.slice/" + secret + "\n"),
		"proc/sys/kernel/random/boot_id":                          file(secret),
		"proc/1/cmdline":                                          file(secret),
		"proc/sys/kernel/hostname":                                file(secret),
		"sys/devices/system/cpu/online":                           file("0-1\n"),
		"sys/devices/system/node/node0/cpulist":                   file("0-1\n"),
		"sys/fs/cgroup/memory/memory.stat":                        file("cache 1\n"),
		"sys/fs/cgroup/memory/kubepods/memory.usage_in_bytes":     file("1\n"),
		"sys/fs/cgroup/memory/" + secret + "/memory.stat":         file("cache 1\n"),
		"sys/fs/cgroup/memory/kubepods/pod1/memory.stat":          file(secret),
		"sys/fs/cgroup/unified/" + secret + "/cgroup.controllers": file(""),
	}
	z := recordedOf(t, tree)
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		b, err := fs.ReadFile(z, f.Name)
		if err != nil || bytes.Contains(b, []byte(secret)) || strings.Contains(f.Name, secret) {
			t.Errorf("%s: %q, %v", f.Name, b, err)
		}
	}
	slices.Sort(names)
	want := []string{
		"proc/meminfo", "proc/self/cgroup", "proc/swaps", "proc/sys/kernel/random/boot_id", "sys/devices/system/cpu/online", "sys/devices/system/node/node0/cpulist",
		"sys/fs/cgroup/memory/kubepods/memory.usage_in_bytes", "sys/fs/cgroup/memory/memory.stat",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if b, _ := fs.ReadFile(z, "proc/swaps"); string(b) != "Filename Type Size Used Priority\n/swap file 1 0 -2\n/dev/sda2 partition 1 0 -3\n" {
		t.Errorf("swaps %q", b)
	}
	if b, _ := fs.ReadFile(z, "proc/self/cgroup"); string(b) != "4:memory:/\n0::/\n" {
		t.Errorf("cgroups %q", b)
	}
	tree = fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": file("cpu\n"), "sys/fs/cgroup/" + secret + "/memory.stat": file(""), "sys/fs/cgroup/init.scope/memory.stat": file("")}
	if z = recordedOf(t, tree); len(z.File) != 2 {
		t.Errorf("of v2: %d files", len(z.File))
	}
}
