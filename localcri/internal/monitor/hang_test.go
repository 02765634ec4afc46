//go:build linux

package monitor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

const (
	fiFreeze = 0xC0045877 // _IOWR('X', 119, int)
	fiThaw   = 0xC0045878 // _IOWR('X', 120, int)
)

// hangingDisk is a directory on a disk of its own, of which writes hang between
// two calls.
func hangingDisk(t *testing.T) (dir string, hang, thaw func()) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	dir = t.TempDir()
	for _, argv := range [][]string{
		{"truncate", "-s", "16M", image},
		{"mkfs.ext4", "-q", "-F", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%q: %v: %s", argv, err, out)
		}
	}
	f, err := os.Open(dir)
	mustNot(t, err)
	frozen := false
	thaw = func() {
		if frozen {
			frozen = false
			mustNot(t, unix.IoctlSetInt(int(f.Fd()), fiThaw, 0))
		}
	}
	t.Cleanup(func() {
		thaw()
		_ = f.Close()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return dir, func() {
		mustNot(t, unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0))
		frozen = true
	}, thaw
}

// A disk that hangs holds up its log, and nothing else: not the ends of the
// containers that write there, not the others, not what clients ask.
func TestDiskThatHangsHoldsUpALogAlone(t *testing.T) {
	p := newPod(t)
	dir, freeze, thaw := hangingDisk(t)
	gate := filepath.Join(p.dir, "go")
	mustNot(t, unix.Mkfifo(gate, 0o600))
	c := p.container("a", "echo before; read x <"+gate+"; echo meanwhile; exit 3")
	c.Log = filepath.Join(dir, "log")
	p.start(c)
	eventually(t, func() error {
		if l, err := parse(c.Log); err != nil || len(l) == 0 {
			return os.ErrNotExist
		}
		return nil
	})
	freeze()
	mustNot(t, os.WriteFile(gate, []byte("go\n"), 0))
	other := p.container("b", "echo well; exit 4")
	p.start(other)
	codes := map[string]int32{}
	for len(codes) < 2 {
		e := <-p.c.Events()
		if e.Exit != nil {
			codes[e.Exit.ID] = e.Exit.Code
		}
	}
	if codes["a"] != 3 || codes["b"] != 4 {
		t.Errorf("exits are %v", codes)
	}
	if e, err := monitor.ReadExit(c.ExitFile); err != nil || e.Code != 3 {
		t.Errorf("record is %+v, %v", e, err)
	}
	mustNot(t, p.c.Keep(background(t), "a", []byte("x")))
	if got := text(lines(t, other.Log), "stdout"); got != "well\n" {
		t.Errorf("the other's log is %q", got)
	}
	thaw()
	eventually(t, func() error {
		if l, err := parse(c.Log); err != nil || text(l, "stdout") != "before\nmeanwhile\n" {
			return os.ErrNotExist
		}
		return nil
	})
}
