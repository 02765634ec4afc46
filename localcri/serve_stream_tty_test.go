//go:build linux

package localcri

import (
	"context"
	"io"
	"testing"

	"go.uber.org/zap"
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
