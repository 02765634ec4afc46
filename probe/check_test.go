package probe_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/probe"
)

type checkExitError int

func (e checkExitError) Error() string   { return "exit" }
func (e checkExitError) ExitStatus() int { return int(e) }

func TestExec(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 11<<10)
	generic := errors.New("connection refused")
	for _, c := range []struct {
		name   string
		out    []byte
		err    error
		want   probe.Outcome
		output string // its beginning
		fails  error
	}{
		{name: "exit 0", out: []byte("OK"), want: probe.OutcomeSuccess, output: "OK"},
		{name: "an error that says exit 0", out: []byte("OK"), err: checkExitError(0), want: probe.OutcomeSuccess, output: "OK"},
		{name: "long output", out: long, want: probe.OutcomeSuccess, output: string(long[:probe.MaxCheckOutput])},
		{name: "generic error", err: generic, want: probe.OutcomeUnknown, fails: generic},
		{name: "exit 1", out: []byte("bad"), err: checkExitError(1), want: probe.OutcomeFailure, output: "bad"},
		{name: "exit 1, wrapped", out: long, err: fmt.Errorf("run: %w", checkExitError(1)), want: probe.OutcomeFailure, output: string(long[:probe.MaxCheckOutput])},
		{name: "timeout", err: context.DeadlineExceeded, want: probe.OutcomeFailure, output: "command timed out after"},
		{name: "timeout by gRPC", err: errors.New("rpc error: code = DeadlineExceeded desc = it took too long"), want: probe.OutcomeFailure, output: "command timed out after"},
		{name: "wrapped timeout by gRPC", err: fmt.Errorf("exec_sync: %w", errors.New("rpc error: code = DeadlineExceeded desc = x")), want: probe.OutcomeFailure, output: "command timed out after"},
	} {
		e := probe.ExecCheck{Command: []string{"a", "b"}, Run: func(_ context.Context, command []string, _ time.Duration) ([]byte, error) {
			if strings.Join(command, " ") != "a b" {
				t.Errorf("command is %q", command)
			}
			return c.out, c.err
		}}
		o, out, err := e.Check(t.Context())
		if o != c.want || !strings.HasPrefix(out, c.output) || len(out) > probe.MaxCheckOutput || !errors.Is(err, c.fails) {
			t.Errorf("%s: %v, %.30q, %v; want %v, %.30q, %v", c.name, o, out, err, c.want, c.output, c.fails)
		}
	}
}

// The command's own timeout is over before the context's; whoever is silent
// beyond both is not the command.
func TestExecTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given time.Duration
		e := probe.ExecCheck{Slack: 2 * time.Second, Run: func(ctx context.Context, _ []string, timeout time.Duration) ([]byte, error) {
			given = timeout
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		o, _, err := e.Check(ctx)
		if given != 5*time.Second || o != probe.OutcomeUnknown || !errors.Is(err, probe.ErrNoAnswer) {
			t.Errorf("timeout %v, %v, %v; want 5s, Unknown, ErrNoAnswer", given, o, err)
		}
		e.Slack = 0
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if o, _, err := e.Check(ctx); o != probe.OutcomeFailure || err != nil {
			t.Errorf("without slack: %v, %v, want Failure", o, err)
		}
	})
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if o, out, err := (probe.TCPCheck{Host: "127.0.0.1", Port: port}).Check(within(t, 5*time.Second)); o != probe.OutcomeSuccess || out != "" || err != nil {
		t.Errorf("open port: %v, %q, %v", o, out, err)
	}
	l.Close()
	for _, host := range []string{"127.0.0.1", "name.invalid"} {
		if o, out, err := (probe.TCPCheck{Host: host, Port: port}).Check(within(t, 5*time.Second)); o != probe.OutcomeFailure || out == "" || err != nil {
			t.Errorf("%s: %v, %q, %v; want a failure that says why", host, o, out, err)
		}
	}
}

// checkTimeWait counts the sockets in TIME_WAIT at a port, on either side.
func checkTimeWait(t *testing.T, port int) (n int) {
	t.Helper()
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		t.Skip("needs /proc/net/tcp: ", err)
	}
	defer f.Close()
	hex := fmt.Sprintf(":%04X", port)
	for s := bufio.NewScanner(f); s.Scan(); {
		if w := strings.Fields(s.Text()); len(w) > 3 && w[3] == "06" && (strings.HasSuffix(w[1], hex) || strings.HasSuffix(w[2], hex)) {
			n++
		}
	}
	return n
}

func TestNoTimeWait(t *testing.T) {
	u := serve(t, func(http.ResponseWriter, *http.Request) {})
	port, _ := strconv.Atoi(u.Port())
	if o, out, _ := (probe.TCPCheck{Host: "127.0.0.1", Port: port, Graceful: true}).Check(within(t, time.Second)); o != probe.OutcomeSuccess {
		t.Fatal(out)
	}
	before := checkTimeWait(t, port)
	for range 20 {
		for _, f := range []probe.CheckFunc{probe.HTTPCheck{URL: u}.Check, probe.TCPCheck{Host: "127.0.0.1", Port: port}.Check} {
			if o, out, _ := f(within(t, 5*time.Second)); o != probe.OutcomeSuccess {
				t.Fatal(out)
			}
		}
	}
	// At most the graceful one, which may still be on its way there.
	if n := checkTimeWait(t, port); n > max(before, 1) {
		t.Errorf("%d sockets in TIME_WAIT after 40 checks, %d before", n, before)
	}
}

func TestOutcomeString(t *testing.T) {
	if got := fmt.Sprint(probe.OutcomeUnknown, probe.OutcomeSuccess, probe.OutcomeWarning, probe.OutcomeFailure); got != "unknown success warning failure" {
		t.Error(got)
	}
}
