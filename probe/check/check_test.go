package check_test

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

	"github.com/nodewright/nodewright/probe/check"
)

type exitError int

func (e exitError) Error() string   { return "exit" }
func (e exitError) ExitStatus() int { return int(e) }

func TestExec(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 11<<10)
	generic := errors.New("connection refused")
	for _, c := range []struct {
		name   string
		out    []byte
		err    error
		want   check.Outcome
		output string // its beginning
		fails  error
	}{
		{name: "exit 0", out: []byte("OK"), want: check.Success, output: "OK"},
		{name: "an error that says exit 0", out: []byte("OK"), err: exitError(0), want: check.Success, output: "OK"},
		{name: "long output", out: long, want: check.Success, output: string(long[:check.MaxOutput])},
		{name: "generic error", err: generic, want: check.Unknown, fails: generic},
		{name: "exit 1", out: []byte("bad"), err: exitError(1), want: check.Failure, output: "bad"},
		{name: "exit 1, wrapped", out: long, err: fmt.Errorf("run: %w", exitError(1)), want: check.Failure, output: string(long[:check.MaxOutput])},
		{name: "timeout", err: context.DeadlineExceeded, want: check.Failure, output: "command timed out after"},
		{name: "timeout by gRPC", err: errors.New("rpc error: code = DeadlineExceeded desc = it took too long"), want: check.Failure, output: "command timed out after"},
		{name: "wrapped timeout by gRPC", err: fmt.Errorf("exec_sync: %w", errors.New("rpc error: code = DeadlineExceeded desc = x")), want: check.Failure, output: "command timed out after"},
	} {
		e := check.Exec{Command: []string{"a", "b"}, Run: func(_ context.Context, command []string, _ time.Duration) ([]byte, error) {
			if strings.Join(command, " ") != "a b" {
				t.Errorf("command is %q", command)
			}
			return c.out, c.err
		}}
		o, out, err := e.Check(t.Context())
		if o != c.want || !strings.HasPrefix(out, c.output) || len(out) > check.MaxOutput || !errors.Is(err, c.fails) {
			t.Errorf("%s: %v, %.30q, %v; want %v, %.30q, %v", c.name, o, out, err, c.want, c.output, c.fails)
		}
	}
}

// The command's own timeout is over before the context's; whoever is silent
// beyond both is not the command.
func TestExecTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given time.Duration
		e := check.Exec{Slack: 2 * time.Second, Run: func(ctx context.Context, _ []string, timeout time.Duration) ([]byte, error) {
			given = timeout
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		o, _, err := e.Check(ctx)
		if given != 5*time.Second || o != check.Unknown || !errors.Is(err, check.ErrNoAnswer) {
			t.Errorf("timeout %v, %v, %v; want 5s, Unknown, ErrNoAnswer", given, o, err)
		}
		e.Slack = 0
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if o, _, err := e.Check(ctx); o != check.Failure || err != nil {
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
	if o, out, err := (check.TCP{Host: "127.0.0.1", Port: port}).Check(within(t, testTimeout)); o != check.Success || out != "" || err != nil {
		t.Errorf("open port: %v, %q, %v", o, out, err)
	}
	l.Close()
	for _, host := range []string{"127.0.0.1", "name.invalid"} {
		if o, out, err := (check.TCP{Host: host, Port: port}).Check(within(t, testTimeout)); o != check.Failure || out == "" || err != nil {
			t.Errorf("%s: %v, %q, %v; want a failure that says why", host, o, out, err)
		}
	}
}

// timeWait counts the sockets in TIME_WAIT at a port, on either side.
func timeWait(t *testing.T, port int) (n int) {
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
	if o, out, _ := (check.TCP{Host: "127.0.0.1", Port: port, Graceful: true}).Check(within(t, testTimeout)); o != check.Success {
		t.Fatal(out)
	}
	before := timeWait(t, port)
	for range 20 {
		for _, f := range []check.Func{check.HTTP{URL: u}.Check, check.TCP{Host: "127.0.0.1", Port: port}.Check} {
			if o, out, _ := f(within(t, testTimeout)); o != check.Success {
				t.Fatal(out)
			}
		}
	}
	// At most the graceful one, which may still be on its way there.
	if n := timeWait(t, port); n > max(before, 1) {
		t.Errorf("%d sockets in TIME_WAIT after 40 checks, %d before", n, before)
	}
}

func TestOutcomeString(t *testing.T) {
	if got := fmt.Sprint(check.Unknown, check.Success, check.Warning, check.Failure); got != "unknown success warning failure" {
		t.Error(got)
	}
}
