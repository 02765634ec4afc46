package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/network"
)

// groups runs each plugin in a process group of its own.
type groups struct{}

// process is a started process. It is not reaped while its group may have to be
// killed, so that the group's number is not reused.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	pipes  [2]*os.File // stdout, stderr
	stdout limited
	stderr tail
	copies sync.WaitGroup // goroutines that read the pipes
	held   atomic.Bool    // another process kept a pipe open after its end
	exited chan struct{}
}

func (groups) run(ctx context.Context, c command, left *sync.WaitGroup) (output, error) {
	p, err := start(c)
	if err != nil {
		return output{}, err
	}
	if err := network.WriteGuard(c.guard, p.cmd.Process.Pid); err != nil {
		p.kill()
		left.Go(func() { _ = p.finish() })
		return output{}, err
	}
	var why error
	select {
	case <-p.exited:
	case <-p.stdout.full:
		why = errFlood
	case <-ctx.Done():
		why = errKilled
		if errors.Is(ctx.Err(), context.Canceled) {
			why = errGone
		}
	}
	if why != nil {
		p.kill()
		t := time.NewTimer(killTimeout)
		defer t.Stop()
		select {
		case <-p.exited:
		case <-t.C:
			left.Go(func() { _ = p.finish() })
			return output{stderr: p.stderr.String()}, fmt.Errorf("%w: %w", why, errStuck)
		}
	}
	failed := p.finish()
	out := output{stdout: p.stdout.bytes(), stderr: p.stderr.String(), failed: failed}
	if why == nil && p.stdout.isFull() {
		why = errFlood
	}
	return out, why
}

// start starts a process. This package creates its pipes: before the process is reaped, it has to
// know whether other processes have them open.
func start(c command) (*process, error) {
	p := &process{cmd: exec.Command(c.path), exited: make(chan struct{}), stdout: limited{full: make(chan struct{})}} //nolint:gosec // that is what plugins are
	var theirs [3]*os.File
	var err error
	open := func(ours, theirs **os.File, reading bool) {
		if err != nil {
			return
		}
		var r, w *os.File
		if r, w, err = os.Pipe(); err != nil {
			return
		}
		if *ours, *theirs = w, r; reading {
			*ours, *theirs = r, w
		}
	}
	open(&p.stdin, &theirs[0], false)
	open(&p.pipes[0], &theirs[1], true)
	open(&p.pipes[1], &theirs[2], true)
	if err == nil {
		p.cmd.Env = c.env
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p.cmd.ExtraFiles = extraFiles(c.guard)
		err = p.cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		p.closePipes()
		return nil, err
	}
	p.copies.Go(func() {
		_, err := p.stdin.Write(c.stdin)
		p.copied(err)
		_ = p.stdin.Close()
	})
	p.copies.Go(func() {
		err := drain(&p.stdout, p.pipes[0])
		p.copied(err)
	})
	p.copies.Go(func() {
		err := drain(&p.stderr, p.pipes[1])
		p.copied(err)
	})
	go func() {
		defer close(p.exited)
		awaitExit(p.cmd.Process.Pid)
	}()
	return p, nil
}

// buffers has the buffers for copying pipes. They are small, since plugins write little, and
// each plugin has two pipes.
var buffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// drain copies the data of a pipe.
func drain(to io.Writer, from *os.File) error {
	b, _ := buffers.Get().(*[4 << 10]byte)
	defer buffers.Put(b)
	// The wrappers hide methods that would allocate their own buffers.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, b[:])
	return err
}

// copied stores the error of copying a pipe, unless it only means that the plugin does not read
// its input.
func (p *process) copied(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.held.Store(true)
	}
}

// maxInherited limits the descriptors that are checked.
const maxInherited = 4096

// extraFiles returns a process's descriptors from 3 on: the guard, and nil in place
// of descriptors that the agent inherited and that are not closed on exec, for
// example from a careless supervisor.
func extraFiles(guard *os.File) []*os.File {
	names, _ := safefile.Names("/proc/self/fd", maxInherited) // an incomplete list is better than none
	last := 2
	if guard != nil {
		last = 3
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= last || fd > maxInherited {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			last = fd
		}
	}
	files := make([]*os.File, last-2) // a nil file is closed in the process
	if guard != nil {
		files[0] = guard
	}
	return files
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.pipes[0], p.pipes[1]} {
		_ = f.Close()
	}
}

// awaitExit waits for the end of a child, and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (p *process) kill() { _ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL) }

// finish waits for the end of a process and of its pipes, and reaps it. It kills
// processes of its group that keep the pipes open.
func (p *process) finish() error {
	<-p.exited
	for _, f := range []*os.File{p.stdin, p.pipes[0], p.pipes[1]} {
		_ = f.SetDeadline(time.Now().Add(pipeTimeout))
	}
	p.copies.Wait()
	if p.held.Load() {
		p.kill()
	}
	p.closePipes()
	return p.cmd.Wait()
}
