//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStatIsReadWhateverTheName(t *testing.T) {
	line := "7 (a) S 1 (b) Z 42 " + strings.Repeat("0 ", 17) + "99 " + strings.Repeat("0 ", 29) + "768"
	s, ok := parseStat([]byte(line))
	if !ok || s.state != 'Z' || s.parent != 42 || s.startTime != 99 || exitCode(s.code) != 3 || s.unexecuted {
		t.Errorf("got %+v, %v", s, ok)
	}
	if s, ok := parseStat([]byte("7 (a) Z 42 0 0 0 0 4194368 " + strings.Repeat("0 ", 13))); !ok || !s.unexecuted {
		t.Errorf("of one that was only forked: %+v, %v", s, ok)
	}
	s, ok = statOf(os.Getpid())
	if !ok || s.parent != os.Getppid() || s.startTime == 0 || s.unexecuted {
		t.Errorf("this process is %+v, %v", s, ok)
	}
}

func TestRefusedPrograms(t *testing.T) {
	const exited255, exited0, killed = 255 << 8, 0, unix.WaitStatus(unix.SIGKILL)
	for _, c := range []struct {
		d    death
		want bool
	}{
		{death{status: exited255, unexecuted: true}, true},
		{death{status: exited255}, false},
		{death{status: exited0, unexecuted: true}, false},
		{death{status: killed, unexecuted: true}, false}, // stopped before it was executed
	} {
		if got := c.d.refused(); got != c.want {
			t.Errorf("%+v: %t, want %t", c.d, got, c.want)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("7 (a) S 1 1 1"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		parseStat(b)
		oomKills(b)
		parseTime(b)
		lastLine(b)
	})
}

func TestOOMKillsAreCountedOfBothVersions(t *testing.T) {
	for in, want := range map[string]uint64{
		"low 0\nhigh 3\nmax 4\noom 2\noom_kill 1\noom_group_kill 0\n": 1,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 12\n":              12,
		"oom_kill x\n": 0,
		"":             0,
	} {
		if got := oomKills([]byte(in)); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

// A status is kept while an executor runs that may be about to tell its PID.
func TestStatusOfAnUnknownChildIsKeptForItsExecutor(t *testing.T) {
	var o orphans
	o.add(1, death{status: 0})
	first := o.begin()
	o.add(2, death{status: 256})
	second := o.begin()
	o.add(3, death{status: 512})
	if _, ok := o.take(1); ok {
		t.Error("kept though no executor ran")
	}
	o.end(first)
	if _, ok := o.take(2); ok {
		t.Error("kept though the executor that could have made it is gone")
	}
	if e, ok := o.take(3); !ok || e.status != 512 {
		t.Errorf("got %v, %v", e, ok)
	}
	for pid := range 2 * maxOrphans {
		o.add(pid, death{})
	}
	if len(o.ended) > maxOrphans {
		t.Errorf("%d are kept", len(o.ended))
	}
	o.end(second)
	if len(o.ended) != 0 {
		t.Error("kept when no executor runs")
	}
}

func TestPIDFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	for in, want := range map[string]int{"12": 12, " 12\n": 12, "": 0, "1": 0, "-3": 0, "x": 0, "99999999999999": 0} {
		path := filepath.Join(dir, "pid")
		if err := os.WriteFile(path, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readPID(path); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readPID(filepath.Join(dir, "pipe")); got != 0 { // and does not wait for a writer
		t.Errorf("a pipe says %d", got)
	}
}

func TestTreeIsKilledToItsLeaves(t *testing.T) {
	dir := t.TempDir()
	script := `trap "" TERM HUP; for i in 1 2 3; do (trap "" TERM; sh -c 'echo $$ >` + dir + `/'$i'; exec sleep 1000' & wait) & done; wait`
	cmd := exec.Command("sh", "-c", script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var leaves []int
	for end := time.Now().Add(time.Minute); len(leaves) < 3 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		leaves = nil
		for _, name := range []string{"1", "2", "3"} {
			if pid := readPID(filepath.Join(dir, name)); pid != 0 {
				leaves = append(leaves, pid)
			}
		}
	}
	killTree(cmd.Process.Pid)
	if err := cmd.Wait(); err == nil {
		t.Error("root was not killed")
	}
	for _, pid := range leaves {
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if s, ok := statOf(pid); !ok || s.state == 'Z' {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("leaf %d lives", pid)
			}
		}
	}
	if len(leaves) != 3 {
		t.Errorf("there were %d leaves", len(leaves))
	}
}
