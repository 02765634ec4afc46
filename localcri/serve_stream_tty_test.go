//go:build linux

package localcri

import (
	"context"
	"io"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

// noted keeps what the streams were asked for.
type noted struct {
	Streams

	exec   ExecOptions
	attach AttachOptions
}

func (n *noted) Exec(_ context.Context, _ string, o ExecOptions) (int32, error) {
	n.exec = o
	return 0, nil
}

func (n *noted) Attach(_ context.Context, _ string, o AttachOptions) error {
	n.attach = o
	return nil
}

// Over WebSockets the streaming server hands on a writer for standard error also with a terminal.
func TestTerminalHasNoStandardError(t *testing.T) {
	_, w := io.Pipe()
	for _, tty := range []bool{true, false} {
		n := &noted{}
		s := &serverStreams{to: n, log: zap.NewNop()}
		if err := s.Exec(t.Context(), "c", []string{"sh"}, nil, w, w, tty, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Attach(t.Context(), "c", nil, w, w, tty, nil); err != nil {
			t.Fatal(err)
		}
		if (n.exec.Stderr == nil) != tty || (n.attach.Stderr == nil) != tty || n.exec.Stdout == nil || n.attach.Stdout == nil {
			t.Errorf("terminal %v: exec %v, attach %v", tty, n.exec, n.attach)
		}
	}
}

// unable cannot run any program. It writes said to standard error, as OCI runtimes do.
type unable struct {
	Streams

	reason notRun
	said   string
}

func (u unable) Exec(_ context.Context, _ string, o ExecOptions) (int32, error) {
	if o.Stderr != nil {
		_, _ = io.WriteString(o.Stderr, u.said)
	}
	return 0, errorf(codes.Unknown, "failed to exec in container c: %w", u.reason)
}

// output collects what is written to a stream.
type output struct{ strings.Builder }

func (*output) Close() error { return nil }

func TestExecOfAProgramThatCannotRun(t *testing.T) {
	const (
		missing  = `exec failed: unable to start container process: exec: "nosuch": executable file not found in $PATH`
		refused  = `exec failed: unable to start container process: exec: "/etc/passwd": permission denied`
		ofCrun   = "executable file `nosuch` not found: No such file or directory"
		ofAnyone = "exec failed: cannot allocate memory"
	)
	for _, tc := range []struct {
		reason notRun
		said   string
		tty    bool
		want   int // exit code; 0: another error
		stdout string
		stderr string
	}{
		{missing, missing + "\n", false, 127, "", missing + "\n"},
		{missing, "", true, 127, missing + "\r\n", ""},
		{refused, "", false, 126, "", refused + "\r\n"},
		{ofCrun, "", false, 127, "", ofCrun + "\r\n"},
		{ofAnyone, "", false, 0, "", ""},
	} {
		var stdout, stderr output
		s := &serverStreams{to: unable{reason: tc.reason, said: tc.said}, log: zap.NewNop()}
		err := s.Exec(t.Context(), "c", []string{"nosuch"}, nil, &stdout, &stderr, tc.tty, nil)
		code := 0
		if exit, ok := err.(*ExitError); ok { //nolint:errorlint // as the streaming server looks
			code = exit.ExitStatus()
		}
		if err == nil || code != tc.want || stdout.String() != tc.stdout || stderr.String() != tc.stderr {
			t.Errorf("%s, terminal %v: %v, stdout %q, stderr %q; want exit code %d, %q, %q", tc.reason, tc.tty, err, stdout.String(), stderr.String(), tc.want, tc.stdout, tc.stderr)
		}
	}
}
