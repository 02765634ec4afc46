//go:build linux

package localcri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

func TestWhatAMonitorSaysOfAnEnd(t *testing.T) {
	at := time.Unix(7, 0)
	for _, c := range []struct {
		exit            monitor.Exit
		code            int32
		reason, message string
	}{
		{monitor.Exit{At: at}, 0, reasonCompleted, ""},
		{monitor.Exit{At: at, Code: 255}, 255, reasonError, ""},
		{monitor.Exit{At: at, Code: 137, OOM: true}, 137, reasonOOMKilled, ""},
		{monitor.Exit{At: at, Code: 255, Reason: monitor.ReasonMonitorLost}, 255, reasonMonitorLost, "monitor had ended"},
		{monitor.Exit{At: at, Code: 128, Reason: monitor.ReasonNotExecuted}, 128, life.ReasonStartError, "refused to execute"},
	} {
		e := endingOf(c.exit)
		if e.Code != c.code || e.Reason != c.reason || !strings.Contains(e.Message, c.message) || (c.message == "") != (e.Message == "") || e.Finished != at.UnixNano() {
			t.Errorf("%+v is %+v", c.exit, e)
		}
	}
}

// An end that is heard of before the answer of the start has the start with it, on
// record: the agent may be killed before that answer comes.
func TestEndBeforeTheAnswerOfItsStart(t *testing.T) {
	b := newBench(t)
	sandbox := b.sandbox("p")
	for name, c := range map[string]struct {
		exit    monitor.Exit
		started int64
	}{
		"known":        {monitor.Exit{Code: 3, StartedAt: time.Unix(0, 5), At: time.Unix(0, 7)}, 5},
		"not told":     {monitor.Exit{Code: 3, At: time.Unix(0, 7)}, 0},
		"not executed": {monitor.Exit{Code: 128, StartedAt: time.Unix(0, 5), At: time.Unix(0, 7), Reason: monitor.ReasonNotExecuted}, 0},
	} {
		k := b.rt.containers[b.container(sandbox, strings.ReplaceAll(name, " ", "-"))]
		k.life = life.LoadContainer(life.Record{State: life.Starting}, false)
		c.exit.ID = k.id
		k.pod.heard(monitor.Event{Exit: &c.exit})
		if st := b.status(k.id); st.GetStartedAt() != c.started || st.GetFinishedAt() != 7 || st.GetExitCode() != c.exit.Code {
			t.Errorf("%s: status %v", name, st)
		}
	}
}

// A program that could not be executed is named, when its container had begun.
func TestProgramOfAnotherArchitecture(t *testing.T) {
	b := newBench(t)
	c := b.container(b.sandbox("p"), "c")
	if err := b.rt.StartContainer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	k := b.rt.containers[c]
	if err := os.MkdirAll(filepath.Dir(k.bundle(processFile)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.bundle(processFile), []byte(`{"args": ["/bin/other", "x"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k.pod.heard(monitor.Event{Exit: &monitor.Exit{ID: c, Code: 128, At: time.Now(), Reason: monitor.ReasonNotExecuted}})
	st := b.status(c)
	if st.GetExitCode() != 128 || st.GetReason() != life.ReasonStartError || st.GetFinishedAt() == 0 || !strings.Contains(st.GetMessage(), `"/bin/other": the kernel refused to execute`) {
		t.Errorf("status %v", st)
	}
}
