//go:build linux

package monitor

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// Process is a process that Exec started.
type Process struct {
	c      *Client
	handle uint64
	pid    int
	master *os.File
	done   chan struct{}
	once   sync.Once
	code   int32 // written before done is closed
	err    error // written before done is closed
}

// Exec runs a process in a container. If ctx ends before the monitor has reported that the
// process runs, the process is killed. The error is a *StartError if the executor failed, and
// ErrNotRunning if the container does not run.
func (c *Client) Exec(ctx context.Context, e Exec) (*Process, error) {
	m := wire.Message{
		Type: wire.Exec, ID: e.ID, Create: e.Argv, Dir: e.Dir, PIDFile: e.PIDFile, ExecutorLog: e.ExecutorLog, ConsoleSocket: e.ConsoleSocket,
		StartTimeout: nanoseconds(e.StartTimeout), Timeout: nanoseconds(e.Timeout),
		Flags: flag(e.Terminal, wire.FlagTerminal) | flag(e.KillWithClient, wire.FlagKillWithClient),
	}
	var files []*os.File
	for i, f := range [...]*os.File{e.Stdin, e.Stdout, e.Stderr} {
		if f == nil {
			continue
		}
		_ = f.Fd() // makes the file blocking, as programs expect of their streams
		files = append(files, f)
		m.Files |= 1 << i
	}
	p := &Process{c: c, done: make(chan struct{})}
	_, err := c.call(ctx, m, files, func(r reply, waiting bool) {
		p.handle, p.pid = r.m.Handle, int(r.m.PID)
		p.master, r.files[2] = r.files[2], nil
		r.close()
		c.mu.Lock()
		over := c.over
		if !over {
			c.processes[p.handle] = p
		}
		c.mu.Unlock()
		if over {
			p.finish(0, ErrGone)
		}
		if !waiting {
			if p.master != nil {
				_ = p.master.Close()
			}
			go func() { _ = p.Kill() }()
		}
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Process) finish(code int32, err error) {
	p.once.Do(func() {
		p.code, p.err = code, err
		close(p.done)
	})
}

// Wait waits for the end of the process and returns the exit status, or 128 plus the signal. The
// error is ErrTimeout if the process was killed at its deadline, and ErrGone if the monitor has
// ended, so that the status is unknown.
func (p *Process) Wait(ctx context.Context) (code int32, err error) {
	select {
	case <-p.done:
		return p.code, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Resize sets the size of the terminal, in characters.
func (p *Process) Resize(width, height uint16) error {
	if p.master == nil {
		return os.ErrInvalid
	}
	raw, err := p.master.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	})
	if err == nil {
		err = set
	}
	return err
}

// Kill kills the process and its children. It does not wait for their end. It is no error if the
// process has ended.
func (p *Process) Kill() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	_, err := p.c.call(ctx, wire.Message{Type: wire.Kill, Handle: p.handle}, nil, nil)
	select {
	case <-p.done:
		return nil
	default:
		return err
	}
}

// PID returns the PID of the process in the machine's PID namespace.
func (p *Process) PID() int { return p.pid }

// Master returns the terminal's master, nil without a terminal. The caller has to close it, which
// hangs up the terminal.
func (p *Process) Master() *os.File { return p.master }

// Attach copies between a container's streams and the caller's pipes or sockets. It returns nil
// when the container ends, the error of ctx when ctx ends, or ErrCut if the monitor disconnects
// the client because it does not read. The monitor gets duplicates of the files and makes them
// non-blocking; the caller may close its own files even before Attach returns. Nil files are
// ignored.
func (c *Client) Attach(ctx context.Context, id string, stdin, stdout, stderr *os.File) error {
	m := wire.Message{Type: wire.Attach, ID: id}
	var files []*os.File
	for i, f := range [...]*os.File{stdin, stdout, stderr} {
		if f != nil {
			files = append(files, f)
			m.Files |= 1 << i
		}
	}
	ended := make(chan error, 1)
	detach := func(handle uint64) {
		ctx, cancel := context.WithTimeout(context.Background(), sendTime)
		defer cancel()
		_, _ = c.call(ctx, wire.Message{Type: wire.Detach, ID: id, Handle: handle}, nil, nil)
	}
	answer, err := c.call(ctx, m, files, func(r reply, waiting bool) {
		r.close()
		c.mu.Lock()
		over := c.over
		if !over {
			c.attached[r.m.Handle] = ended
		}
		c.mu.Unlock()
		if over {
			ended <- ErrGone
		}
		if !waiting {
			go detach(r.m.Handle)
		}
	})
	if err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		detach(answer.Handle)
		return ctx.Err()
	}
}
