package diskusage

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file counts for as long as a process has it open or mapped, and once for all that have
// it; one with a name counts where its name is, and memory does not count.
func TestHeldFiles(t *testing.T) {
	dir := t.TempDir()
	create := func(name string, bytes int) *os.File {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil { // blocks are allocated late
			t.Fatal(err)
		}
		return f
	}
	self := []string{strconv.Itoa(os.Getpid())}
	sum := func() (n int, bytes int64) {
		for _, f := range NewHeld("", 1<<20).Of(append(self, self...)) {
			// Other tests of this process have files, too.
			if strings.Contains(f.Root, "/") && !f.Overlay || f.Overlay {
				n++
				bytes += f.Bytes
			}
		}
		return n, bytes
	}
	n0, bytes0 := sum()
	held, named := create("held", 1<<20), create("named", 1<<20)
	linked := create("linked", 1<<20)
	if err := os.Link(linked.Name(), filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	twice, err := unix.Dup(int(held.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(twice) }()
	memory, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(memory) }()
	if err := unix.Ftruncate(memory, 1<<20); err != nil {
		t.Fatal(err)
	}
	if n, bytes := sum(); n != n0 || bytes != bytes0 {
		t.Errorf("with names: %d files more of %d bytes", n-n0, bytes-bytes0)
	}
	for _, f := range []*os.File{held, linked} {
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
	n, bytes := sum()
	if n != n0+1 || bytes-bytes0 < 1<<20 || bytes-bytes0 > 1<<20+64<<10 {
		t.Errorf("without a name: %d files more of %d bytes; want one of 1 MiB", n-n0, bytes-bytes0)
	}
	_ = named
	if got := NewHeld("", 0).Of(self); len(got) != 0 {
		t.Errorf("a bound of 0 finds %v", got)
	}
}

func TestHeldByMappingAlone(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Readlink("/proc/self/map_files"); os.Geteuid() != 0 {
		t.Skip("reads /proc/PID/map_files: needs root", err)
	}
	for _, h := range NewHeld("", 1<<20).Of([]string{strconv.Itoa(os.Getpid())}) {
		if h.Bytes >= 3<<20 && h.Bytes < 3<<20+64<<10 {
			return
		}
	}
	t.Error("a mapped file of 3 MiB without a name is not found")
}
