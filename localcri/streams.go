//go:build linux

package localcri

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// Streams are exec, attach and port forwarding for callers in this process.
type Streams interface {
	// Exec runs a command until it ends and returns its exit status. If ctx ends, the command is
	// killed.
	Exec(ctx context.Context, id string, o ExecOptions) (exit int32, err error)
	// Attach copies between a container's streams and the caller's until the
	// container or ctx ends.
	Attach(ctx context.Context, id string, o AttachOptions) error
	// PortForward connects rw with a port of localhost in a sandbox until one of the two ends,
	// and closes rw.
	PortForward(ctx context.Context, sandbox string, port int32, rw io.ReadWriteCloser) error
}

// ExecOptions has a command and its streams. At least one stream must not be nil. If TTY is true,
// Stderr must be nil.
type ExecOptions struct {
	Command        []string
	TTY            bool
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resize receives the terminal's sizes. It is nil if the size never changes.
	Resize <-chan Size
}

// AttachOptions has the streams to attach.
type AttachOptions struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan Size
}

// Size is the size of a terminal, in characters.
type Size struct{ Width, Height uint16 }

// Streams returns the runtime's streams.
func (r *Runtime) Streams() Streams { return streams{r} }

type streams struct{ r *Runtime }

func checkStreams(tty bool, stdin io.Reader, stdout, stderr io.Writer) error {
	switch {
	case stdin == nil && stdout == nil && stderr == nil:
		return invalid("stdin, stdout, stderr", "none", "at least one must be set")
	case tty && stderr != nil:
		return invalid("stderr", true, "must not be set with tty")
	}
	return nil
}

// Exec runs a command in a container.
func (s streams) Exec(ctx context.Context, id string, o ExecOptions) (int32, error) {
	if err := checkStreams(o.TTY, o.Stdin, o.Stdout, o.Stderr); err != nil {
		return 0, err
	}
	c, err := s.r.lookContainer(ctx, id)
	if err != nil {
		return 0, err
	}
	m, x, err := c.running(ctx)
	if err != nil {
		return 0, err
	}
	e, err := c.prepareExec(x, o.Command, o.TTY)
	if err != nil {
		return 0, coded(err)
	}
	var pipes pipes
	defer pipes.close()
	if !o.TTY {
		if err := pipes.open(o.Stdin, o.Stdout, o.Stderr); err != nil {
			e.remove()
			return 0, coded(err)
		}
		e.Stdin, e.Stdout, e.Stderr = pipes.theirs[0], pipes.theirs[1], pipes.theirs[2]
		pipes.theirs = [3]*os.File{} // begin closes them
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := begin(ctx, m, e)
	if err != nil {
		err = c.execError(err)
		if errors.As(err, new(notRun)) {
			pipes.drain(ctx) // the OCI runtime may have written the reason
		}
		return 0, err
	}
	var master *os.File
	if o.TTY {
		master = p.Master()
		pipes.terminal(master, o.Stdin, o.Stdout)
	}
	go resize(ctx, o.Resize, func(z Size) { _ = p.Resize(z.Width, z.Height) })
	code, err := p.Wait(ctx)
	if err != nil {
		_ = p.Kill()
		return 0, c.execError(err)
	}
	pipes.drain(ctx) // reads all output; child processes may delay this by at most 2 s
	return code, nil
}

// Attach attaches to a running container.
func (s streams) Attach(ctx context.Context, id string, o AttachOptions) error {
	c, err := s.r.lookContainer(ctx, id)
	if err != nil {
		return err
	}
	if err := checkStreams(c.config.GetTty(), o.Stdin, o.Stdout, o.Stderr); err != nil {
		return err
	}
	m, _, err := c.running(ctx)
	if err != nil {
		return err
	}
	var pipes pipes
	defer pipes.close()
	stdin := o.Stdin
	if !c.config.GetStdin() {
		stdin = nil
	}
	if err := pipes.open(stdin, o.Stdout, o.Stderr); err != nil {
		return coded(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go resize(ctx, o.Resize, func(z Size) { _ = m.Resize(ctx, c.id, z.Width, z.Height) })
	err = m.Attach(ctx, c.id, pipes.theirs[0], pipes.theirs[1], pipes.theirs[2])
	pipes.closeTheirs()
	if errors.Is(err, monitor.ErrCut) {
		return errorf(codes.ResourceExhausted, "attach to container %s was cut: its output was not read in time", c.id)
	}
	if err != nil {
		return c.execError(err)
	}
	pipes.drain(ctx)
	return nil
}

func resize(ctx context.Context, sizes <-chan Size, to func(Size)) {
	for {
		select {
		case z, ok := <-sizes:
			if !ok {
				return
			}
			to(z)
		case <-ctx.Done():
			return
		}
	}
}

// PortForward connects to a port in a sandbox.
func (s streams) PortForward(ctx context.Context, sandbox string, port int32, rw io.ReadWriteCloser) error {
	defer func() { _ = rw.Close() }()
	p, err := s.r.lookPod(ctx, sandbox)
	if err != nil {
		return err
	}
	if port <= 0 || port > 65535 {
		return invalid("port", port, "must be from 1 to 65535")
	}
	if err := p.ready(); err != nil {
		return err
	}
	return coded(s.r.forwarder.Forward(ctx, p.netns(), port, rw))
}

// pipes connect the streams of a caller with those of a process.
type pipes struct {
	theirs [3]*os.File // the process's stdin, stdout and stderr
	ours   []*os.File
	output sync.WaitGroup
}

// open creates a pipe for each stream that is not nil, and starts to copy the stream.
func (p *pipes) open(stdin io.Reader, stdout, stderr io.Writer) error {
	if stdin != nil {
		r, w, err := pipe(false)
		if err != nil {
			return err
		}
		p.theirs[0], p.ours = r, append(p.ours, w)
		go func() { // ends with the caller's stream, or at the next byte after the process has ended
			_, _ = io.Copy(w, stdin)
			_ = w.Close()
		}()
	}
	for i, out := range []io.Writer{stdout, stderr} {
		if out == nil {
			continue
		}
		r, w, err := pipe(true)
		if err != nil {
			return err
		}
		p.theirs[i+1], p.ours = w, append(p.ours, r)
		p.output.Go(func() {
			_, _ = io.Copy(out, r)
			_ = r.Close() // if the caller no longer reads, the process gets EPIPE
		})
	}
	return nil
}

// terminal copies between a terminal and the caller.
func (p *pipes) terminal(master *os.File, stdin io.Reader, stdout io.Writer) {
	if master == nil {
		return
	}
	p.ours = append(p.ours, master)
	if stdin != nil {
		go func() { _, _ = io.Copy(master, stdin) }()
	}
	if stdout == nil {
		stdout = io.Discard
	}
	p.output.Go(func() { _, _ = io.Copy(stdout, master) })
}

func (p *pipes) closeTheirs() {
	for i, f := range p.theirs {
		if f != nil {
			_ = f.Close()
			p.theirs[i] = nil
		}
	}
}

// drain waits until all output that was written before the end of the process has been
// copied.
func (p *pipes) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		p.output.Wait()
		close(done)
	}()
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (p *pipes) close() {
	p.closeTheirs()
	for _, f := range p.ours {
		_ = f.Close()
	}
}

// ReopenContainerLog makes the monitor open the container's log file again, after it was renamed.
// It does nothing for a container without a log.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	c, err := r.lookContainer(ctx, id)
	if err != nil {
		return err
	}
	m, _, err := c.running(ctx)
	if err != nil {
		return err
	}
	if c.logPath() == "" {
		return nil
	}
	if err := m.ReopenLog(ctx, c.id, c.logPath()); err != nil {
		return c.execError(err)
	}
	return nil
}
