//go:build linux

package monitor_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

func descriptors(t testing.TB, pid int) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	mustNot(t, err)
	return len(fds)
}

// Whatever ran leaves no descriptor and no child in the monitor, none in the
// client, and no memory that adds up.
func TestNothingIsLeftOfWhatRan(t *testing.T) {
	p := newPod(t)
	round := func(i int) {
		id := "a" + strconv.Itoa(i)
		c := p.container(id, "cat; exit 1")
		c.Stdin, c.StdinOnce = true, true
		p.start(c)
		proc, err := p.c.Exec(background(t), p.exec(id, id+"x", "exit 2"))
		mustNot(t, err)
		_, err = proc.Wait(background(t))
		mustNot(t, err)
		a := attach(t, p.c, id, true)
		_, _ = a.stdin.WriteString("x\n")
		until(t, a.stdout, "x\n")
		_ = a.stdin.Close()
		mustNot(t, <-a.done)
		for _, f := range []*os.File{a.stdin, a.stdout, a.stderr} {
			_ = f.Close()
		}
		exit(t, p.c, id)
		mustNot(t, p.c.Forget(background(t), id))
		bad := p.container(id+"bad", "")
		bad.Create = []string{"/bin/false"}
		if _, err := p.c.Start(background(t), bad); err == nil {
			t.Fatal("started")
		}
		mustNot(t, p.c.Forget(background(t), id+"bad"))
		other, _, err := monitor.Connect(background(t), p.cfg, p.id)
		mustNot(t, err)
		other.Close()
	}
	round(0)
	round(1)
	var theirs, ours int
	settled := func() error {
		time.Sleep(10 * time.Millisecond)
		a, b := descriptors(t, p.c.PID()), descriptors(t, os.Getpid())
		if a != theirs || b != ours {
			defer func() { theirs, ours = a, b }()
			return fmt.Errorf("descriptors: %d and %d, then %d and %d", theirs, ours, a, b)
		}
		return nil
	}
	eventually(t, settled)
	before, own := theirs, ours
	const rounds = 40
	for i := range rounds {
		round(2 + i)
	}
	eventually(t, settled)
	if theirs > before+2 || ours > own+4 {
		t.Errorf("descriptors: monitor %d, then %d; client %d, then %d", before, theirs, own, ours)
	}
	noZombies(t, p.c.PID())
	if m := rollup(t, p.c.PID()); m["Anonymous"] > 2500 {
		t.Errorf("memory is %v", m)
	} else {
		t.Logf("anonymous memory %d kB", m["Anonymous"])
	}
}
