package nodeagent

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/systemdtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/server"
)

func TestWhatSystemdAsksFor(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for _, tc := range []struct {
		usec, pid string
		want      time.Duration // 0: no watchdog
		err       string
	}{
		{"", "", 0, ""}, {"0", "", 0, ""}, {"0", self, 0, ""},
		{"30000000", "", 30 * time.Second, ""}, {"30000000", self, 30 * time.Second, ""},
		{"30000000", "1", 0, ""}, // it is another process that is watched
		{"1000001", self, time.Second + time.Microsecond, ""},
		{"1000000", self, 0, "WatchdogSec is 1s; want more than 1s"}, {"1", "", 0, "WatchdogSec is 1µs"},
		{"-1", "", 0, `WATCHDOG_USEC="-1"`}, {"soon", "", 0, `WATCHDOG_USEC="soon"`}, {"30000000", "me", 0, `WATCHDOG_PID="me"`},
	} {
		t.Setenv("WATCHDOG_USEC", tc.usec)
		t.Setenv("WATCHDOG_PID", tc.pid)
		w, err := newWatchdog(nil, zap.NewNop())
		switch {
		case (err != nil) != (tc.err != ""), err != nil && !strings.Contains(err.Error(), tc.err):
			t.Errorf("%q, %q: error %v, want %q", tc.usec, tc.pid, err, tc.err)
		case (w != nil) != (tc.want != 0), w != nil && w.interval != tc.want:
			t.Errorf("%q, %q: got %+v, want %v", tc.usec, tc.pid, w, tc.want)
		}
	}
}

// Twice in the interval systemd is told, as long as all is well; a message that
// did not go out is sent once more.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("WATCHDOG_USEC", "20000000")
		var mu sync.Mutex // of what follows
		var sick error
		var told []time.Duration
		var fails int
		w, err := newWatchdog([]server.Check{
			{Name: "syncloop", Check: func(*http.Request) error {
				mu.Lock()
				defer mu.Unlock()
				return sick
			}},
			{Name: devicePluginCheck, Check: func(*http.Request) error { return errors.New("comes back by itself") }},
		}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.tell = func(state string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if state != "WATCHDOG=1" {
				t.Errorf("told %q", state)
			}
			told = append(told, time.Since(began).Round(500*time.Millisecond))
			if fails > 0 {
				fails--
				return false, errors.New("no buffer")
			}
			return true, nil
		}
		stop := testrun.Start(t, w.run)
		is := func(what string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			ok := len(told) == len(want)
			for i := range want {
				ok = ok && told[i] == want[i]*time.Second
			}
			if !ok {
				t.Errorf("%s: told at %v, want %v s", what, told, want)
			}
			told = nil
		}
		time.Sleep(35 * time.Second)
		is("well", 10, 20, 30)
		set := func(err error, n int) {
			mu.Lock()
			defer mu.Unlock()
			sick, fails = err, n
		}
		set(errors.New("the loop stands"), 0)
		time.Sleep(30 * time.Second) // to 65
		is("sick")
		set(nil, 0)
		time.Sleep(10 * time.Second)
		is("well again", 70)
		set(nil, 1)
		time.Sleep(10 * time.Second)
		is("a message that is lost", 80, 81)
		set(nil, 5)
		time.Sleep(20 * time.Second) // to 105
		is("messages that are lost", 90, 91, 100, 101)
		stop()
	})
}

// A check that hangs costs one message, and no more.
func TestWatchdogOfACheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("WATCHDOG_USEC", "20000000")
		w, err := newWatchdog([]server.Check{{Name: "slow", Check: func(r *http.Request) error {
			<-r.Context().Done()
			return r.Context().Err()
		}}}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		w.tell = func(string) (bool, error) { t.Error("told"); return true, nil }
		began := time.Now()
		w.round(t.Context())
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

func TestWhatSystemdHears(t *testing.T) {
	sd := systemdtest.New(t)
	t.Setenv("NOTIFY_SOCKET", sd.Path)
	t.Setenv("WATCHDOG_USEC", "20000000")
	w, err := newWatchdog(nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	w.round(t.Context())
	notify(zap.NewNop(), "READY=1")
	for _, want := range []string{"WATCHDOG=1", "READY=1"} {
		if got := sd.Next(); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	// Nobody listens any more, and nobody ever did: neither harms.
	sd.Close()
	w.round(t.Context())
	t.Setenv("NOTIFY_SOCKET", "")
	w.round(t.Context())
}

// A systemd that hears nothing holds nobody up.
func TestSystemdThatIsFrozen(t *testing.T) {
	sd := systemdtest.New(t)
	t.Setenv("NOTIFY_SOCKET", sd.Path)
	for range 10_000 { // far more than the kernel keeps (net.unix.max_dgram_qlen)
		sent, err := sdNotify("WATCHDOG=1", time.Millisecond)
		if errors.Is(err, os.ErrDeadlineExceeded) && !sent {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("every message was taken")
}
