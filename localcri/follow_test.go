//go:build linux

package localcri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/localcri/monitor"
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
		{monitor.Exit{At: at, Code: 128, Reason: monitor.ReasonNotExecuted}, 128, reasonStartError, "refused to execute"},
	} {
		e := endingOf(c.exit)
		if e.Code != c.code || e.Reason != c.reason || !strings.Contains(e.Message, c.message) || (c.message == "") != (e.Message == "") || e.Finished != at.UnixNano() {
			t.Errorf("%+v is %+v", c.exit, e)
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
	if st.GetExitCode() != 128 || st.GetReason() != reasonStartError || st.GetFinishedAt() == 0 || !strings.Contains(st.GetMessage(), `"/bin/other": the kernel refused to execute`) {
		t.Errorf("status %v", st)
	}
}
