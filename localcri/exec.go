//go:build linux

package localcri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/outputlimit"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

const (
	// maxOutput limits the bytes of each stream that ExecSync returns to a caller without a
	// limit, as in containerd and CRI-O. Further output is read and dropped. maxOutputs limits
	// the sum over all callers. Callers with a limit of at most smallOutput do not count: an
	// agent runs only some dozen probes and hooks at a time.
	maxOutput   = 16 << 20
	maxOutputs  = 64 << 20
	smallOutput = 16 << 10
	// drainTime is how long ExecSync continues to read output that child processes hold open
	// after the end of the command.
	drainTime = 2 * time.Second
	// maxArguments limits the bytes of a command's arguments: the kernel's limit (execve(2)).
	maxArguments = 2 << 20
)

// running returns the monitor and the OCI runtime for an exec. It returns an error if
// the container is not running.
func (c *container) running(ctx context.Context) (monitorConn, ociRuntime, error) {
	p := c.pod
	if phase := c.phase(); phase != life.Running {
		return nil, nil, errorf(codes.FailedPrecondition, "container %s is %s; want it running", c.id, phase)
	}
	_, x, err := p.rt.handler(p.handler)
	if err != nil {
		return nil, nil, err
	}
	m, err := p.client(ctx)
	if err != nil {
		return nil, nil, coded(fmt.Errorf("connect to the monitor of container %s: %w", c.id, err))
	}
	return m, x, nil
}

// execution has the files of a command in a container, which are removed after it.
type execution struct {
	monitor.Exec
	files []string
}

// beginTimeout limits the wait for a monitor's answer to the start of a command: the OCI
// runtime's time, and the monitor's.
const beginTimeout = createTimeout + monitorTimeout

// begin makes a monitor start a command. It takes ownership of the command's ends of the streams,
// and of the files. If the caller gives up, begin returns at once, but both are kept until the
// monitor has answered; then the command is killed.
func begin(ctx context.Context, m monitorConn, e *execution) (execProcess, error) {
	type answer struct {
		p   execProcess
		err error
	}
	answered := make(chan answer)
	go func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginTimeout)
		defer cancel()
		p, err := m.Exec(own, e.Exec)
		e.closeStreams()
		// If the connection to the monitor is lost, the monitor may still read the files. They
		// are removed with the container; no other command uses their names.
		if own.Err() == nil && !errors.Is(err, monitor.ErrGone) {
			e.remove()
		}
		select {
		case answered <- answer{p, err}:
			return
		case <-ctx.Done():
		}
		if err == nil {
			if master := p.Master(); master != nil {
				_ = master.Close()
			}
			_ = p.Kill()
		}
	}()
	select {
	case a := <-answered:
		return a.p, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (e *execution) closeStreams() {
	for _, f := range []*os.File{e.Stdin, e.Stdout, e.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (e *execution) remove() {
	for _, f := range e.files {
		_ = os.Remove(f)
	}
}

// firstProcess returns the description of the container's first process, on which the descriptions
// of other commands are based.
func (c *container) firstProcess() (*specs.Process, error) {
	const most = 16 << 20
	b, err := safefile.ReadFile(c.bundle(processFile), most)
	if err != nil {
		return nil, fmt.Errorf("read process of container: %w", err)
	}
	var p specs.Process
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("read process of container: %w", err)
	}
	return &p, nil
}

// execName returns the name of a command's files. It is unique in this boot, since an OCI runtime
// that an earlier process started may still use its files. It is short, since the address of a
// terminal's socket contains it.
func (r *Runtime) execName() string {
	const names = 36 * 36 * 36 * 36 * 36 * 36
	n := strconv.FormatUint(r.execs.Add(1)%names, 36)
	return "x" + strings.Repeat("0", 6-len(n)) + n
}

// prepareExec writes the files for the OCI runtime.
func (c *container) prepareExec(x ociRuntime, command []string, tty bool) (*execution, error) {
	if len(command) == 0 || command[0] == "" {
		return nil, invalid("cmd", "", "is required")
	}
	size := 0
	for _, a := range command {
		size += len(a) + 1
	}
	if size > maxArguments {
		return nil, invalid("cmd", fmt.Sprintf("%d bytes", size), fmt.Sprintf("must have at most %d", maxArguments))
	}
	process, err := c.firstProcess()
	if err != nil {
		return nil, err
	}
	process.Args, process.Terminal = command, tty
	b, err := json.Marshal(process)
	if err != nil {
		return nil, err
	}
	name := c.rt().execName()
	path := func(suffix string) string { return c.streams(name + suffix) }
	e := &execution{
		Exec: monitor.Exec{
			ID: c.id, Dir: "/", PIDFile: path("p"), ExecutorLog: path("l"), Terminal: tty, StartTimeout: createTimeout, KillWithClient: true,
		},
		files: []string{path(""), path("p"), path("l")},
	}
	if tty {
		e.ConsoleSocket = path("c")
		e.files = append(e.files, path("c"))
	}
	if err := (durable.OS{FileMode: 0o600}).Write(path(""), b, false); err != nil {
		return nil, err
	}
	e.Argv = x.Exec(executor.Execution{ID: c.id, Process: path(""), PIDFile: e.PIDFile, ConsoleSocket: e.ConsoleSocket, Log: e.ExecutorLog})
	return e, nil
}

// ExecSync runs a command in a container and returns its output, at most 16 MiB of each stream. A
// caller can set a lower limit in ctx (internal/outputlimit). If the output of all running
// commands exceeds 64 MiB, the error is ResourceExhausted. A timeout other than 0 kills the
// command and its children; the error is DeadlineExceeded. An exit status other than 0 is an
// error that contains it. Output that background children hold open is read for 2 more seconds.
func (r *Runtime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	stdout, stderr, code, err := r.RunSync(ctx, id, command, timeout)
	if err == nil && code != 0 {
		err = &ExitError{Code: code}
	}
	return stdout, stderr, err
}

// ExitError means that a command ended with an exit status other than 0.
type ExitError struct{ Code int32 }

// Error returns the status.
func (e *ExitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", e.Code)
}

// String returns the same as Error. It is a part of the interface ExitError of
// k8s.io/utils/exec.
func (e *ExitError) String() string { return e.Error() }

// ExitStatus returns the exit status. Probes of Kubernetes call it.
func (e *ExitError) ExitStatus() int { return int(e.Code) }

// Exited returns true, since the command ended by itself and was not killed by this package.
func (e *ExitError) Exited() bool { return true }

// RunSync is ExecSync with the exit status as a result instead of an error.
func (r *Runtime) RunSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, code int32, err error) {
	c, err := r.lookContainer(ctx, id)
	if err != nil {
		return nil, nil, 0, err
	}
	m, x, err := c.running(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	e, err := c.prepareExec(x, command, false)
	if err != nil {
		return nil, nil, 0, coded(err)
	}
	e.Timeout = max(0, timeout)
	most := outputlimit.Of(ctx, maxOutput)
	out, err := r.newCapture(most)
	if err != nil {
		e.remove()
		return nil, nil, 0, coded(err)
	}
	defer out.close()
	errOut, err := r.newCapture(most)
	if err != nil {
		e.remove()
		return nil, nil, 0, coded(err)
	}
	defer errOut.close()
	e.Stdout, e.Stderr = out.takeWrite(), errOut.takeWrite()
	p, err := begin(ctx, m, e)
	if err != nil {
		return nil, nil, 0, c.execError(err)
	}
	code, err = p.Wait(ctx)
	if err != nil && !errors.Is(err, monitor.ErrTimeout) {
		_ = p.Kill() // no one will read its output
	}
	drain, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	stdout, stderr = out.take(drain), errOut.take(drain)
	switch {
	case errors.Is(err, monitor.ErrTimeout):
		return stdout, stderr, -1, errorf(codes.DeadlineExceeded, "command in container %s did not end within %v", c.id, timeout)
	case err != nil:
		return stdout, stderr, -1, c.execError(err)
	case out.refused || errOut.refused:
		return nil, nil, -1, errorf(codes.ResourceExhausted, "the commands that run now wrote more than %d bytes", maxOutputs)
	}
	return stdout, stderr, code, nil
}

// execError adds a gRPC code to a monitor's error about an exec.
func (c *container) execError(err error) error {
	var failed *monitor.StartError
	switch {
	case errors.As(err, &failed):
		return errorf(codes.Unknown, "failed to exec in container %s: %w", c.id, notRun(shown(failed.Message)))
	case errors.Is(err, monitor.ErrNotRunning), errors.Is(err, monitor.ErrUnknown):
		return errorf(codes.FailedPrecondition, "container %s is not running", c.id)
	case errors.Is(err, monitor.ErrGone):
		return errorf(codes.Unavailable, "the monitor of container %s ended", c.id)
	}
	return coded(err)
}

// notRun is the reason why the OCI runtime could not run a command.
type notRun string

func (n notRun) Error() string { return string(n) }

// exitCode returns the exit code of a shell for the reason: 127 if there is no such program, and 126 if
// the program cannot be run. It returns 0 for other reasons.
func (n notRun) exitCode() int32 {
	reason := strings.ToLower(string(n))
	switch {
	case strings.Contains(reason, "executable file") && strings.Contains(reason, "not found"), strings.Contains(reason, "no such file or directory"):
		return 127
	case strings.Contains(reason, "permission denied"), strings.Contains(reason, "exec format error"), strings.Contains(reason, "is a directory"):
		return 126
	default:
		return 0
	}
}

// pipe returns a pipe between this process and another one. If theirsWrites is true, the other
// process gets the writing end, otherwise the reading end. That end is a blocking descriptor.
func pipe(theirsWrites bool) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	ours := fds[1]
	if theirsWrites {
		ours = fds[0]
	}
	// A non-blocking end supports deadlines, and occupies no thread.
	if err := unix.SetNonblock(ours, true); err != nil {
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// capture reads a pipe to its end, so that the writer never blocks. It keeps at most the first
// most bytes.
type capture struct {
	read, write *os.File
	done        chan struct{}
	most        int
	budget      *atomic.Int64 // bytes left for all counted callers; nil: not counted

	mu      sync.Mutex
	kept    []byte
	refused bool // the budget was exhausted
}

func (r *Runtime) newCapture(most int) (*capture, error) {
	read, w, err := pipe(true)
	if err != nil {
		return nil, err
	}
	c := &capture{read: read, write: w, done: make(chan struct{}), most: most}
	if most > smallOutput {
		c.budget = &r.outputs
	}
	go func() {
		defer close(c.done)
		_, _ = io.Copy(c, read)
	}()
	return c, nil
}

// Write keeps the bytes that are within the limit, and drops the others.
func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(b), c.most-len(c.kept))
	if n > 0 && c.budget != nil && c.budget.Add(int64(n)) > maxOutputs {
		c.budget.Add(-int64(n))
		c.refused, c.most = true, len(c.kept)
		return len(b), nil
	}
	c.kept = append(c.kept, b[:n]...)
	return len(b), nil
}

// takeWrite returns the writing end of the pipe. The caller owns it, and close no longer closes
// it.
func (c *capture) takeWrite() *os.File {
	w := c.write
	c.write = nil
	return w
}

// take waits until the stream or ctx ends, and returns the data so far.
func (c *capture) take(ctx context.Context) []byte {
	select {
	case <-c.done:
	case <-ctx.Done():
		_ = c.read.SetReadDeadline(time.Now()) // also ends the read of a stream that never ends
		<-c.done
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept
}

func (c *capture) close() {
	if w := c.takeWrite(); w != nil {
		_ = w.Close()
	}
	_ = c.read.SetReadDeadline(time.Now())
	<-c.done
	_ = c.read.Close()
	if c.budget != nil {
		c.budget.Add(-int64(len(c.kept)))
	}
}

// Exec, Attach and PortForward need URLs, which a Runtime does not have; [Streaming] creates them
// for [Streams].

// Exec is not implemented; see [Streams].
func (r *Runtime) Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return nil, unimplemented("Exec")
}

// Attach is not implemented; see [Streams].
func (r *Runtime) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, unimplemented("Attach")
}

// PortForward is not implemented; see [Streams].
func (r *Runtime) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, unimplemented("PortForward")
}

func unimplemented(method string) error {
	return errorf(codes.Unimplemented, "%s is not implemented", method)
}
