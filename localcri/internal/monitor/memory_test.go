//go:build linux

package monitor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rollup reads what a process' memory comes to, in kB.
func rollup(t testing.TB, pid int) map[string]int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	mustNot(t, err)
	m := map[string]int{}
	for _, l := range strings.Split(string(b), "\n") {
		if f := strings.Fields(l); len(f) == 3 && f[2] == "kB" {
			m[strings.TrimSuffix(f[0], ":")], _ = strconv.Atoi(f[1])
		}
	}
	return m
}

// wakeups counts how often the threads of a process began to run.
func wakeups(t testing.TB, pid int) int {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	n := 0
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, l := range strings.Split(string(b), "\n") {
			if rest, ok := strings.CutPrefix(l, "voluntary_ctxt_switches:"); ok {
				i, _ := strconv.Atoi(strings.TrimSpace(rest))
				n += i
			}
		}
	}
	return n
}

func TestIdleMonitorIsSmall(t *testing.T) {
	p := newPod(t)
	other := newPod(t) // what monitors share counts for both
	for _, id := range []string{"a", "b", "c"} {
		c := p.container(id, "seq 1000; exec sleep 1000")
		c.Stdin = true
		p.start(c)
		eventually(t, func() error {
			if l, err := parse(c.Log); err != nil || len(l) < 1000 {
				return os.ErrNotExist
			}
			return nil
		})
	}
	size, err := os.Stat(p.cfg.Program)
	mustNot(t, err)
	m := rollup(t, p.c.PID())
	private := m["Private_Clean"] + m["Private_Dirty"]
	t.Logf("with 3 containers: RSS %d kB, PSS %d kB, private %d kB, anonymous %d kB; binary %d bytes; other %v", m["Rss"], m["Pss"], private, m["Anonymous"], size.Size(), rollup(t, other.c.PID())["Rss"])
	if private > 1024 || size.Size() > 2_000_000 { // what monitors share is less than their program
		t.Errorf("more than 1 MiB private, or 2 MB of program")
	}
}

// The Go runtime's own watch looks at the clock once a minute: nothing else runs.
func TestIdleMonitorSleeps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	p := newPod(t)
	p.start(p.container("a", "exec sleep 1000"))
	eventually(t, func() error {
		before := wakeups(t, p.c.PID())
		time.Sleep(3 * time.Second)
		if n := wakeups(t, p.c.PID()) - before; n > 0 {
			return fmt.Errorf("%d wake-ups in 3 seconds", n)
		}
		return nil
	})
}
