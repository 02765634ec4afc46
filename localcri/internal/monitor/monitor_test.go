//go:build linux

package monitor_test

import (
	"os"
	"testing"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

func TestContainerRunsLogsAndEnds(t *testing.T) {
	p := newPod(t)
	c := p.container("a", "echo out; echo err >&2; printf 'no end'; exit 3")
	s := p.start(c)
	e := exit(t, p.c, "a")
	if e.Code != 3 || e.OOM || e.Reason != "" || e.LostLogBytes != 0 || e.At.Before(s.At) {
		t.Errorf("exit is %+v", e)
	}
	l := lines(t, c.Log)
	if got := text(l, "stdout"); got != "out\nno end" {
		t.Errorf("stdout is %q", got)
	}
	if got := text(l, "stderr"); got != "err\n" {
		t.Errorf("stderr is %q", got)
	}
	r, err := monitor.ReadExit(c.ExitFile)
	if err != nil || r != e {
		t.Errorf("record is %+v, %v; want %+v", r, err, e)
	}
	if err := p.c.Forget(background(t), "a"); err != nil {
		t.Error(err)
	}
	if err := p.c.Quit(background(t)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.cfg.StateDir + "/mon/pod"); err == nil {
		t.Error("the directory is left")
	}
}
