package containerdtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// Containerd is a private containerd with its pods and files. Its methods may be
// called from one goroutine at a time.
type Containerd struct {
	Socket  string // path of the CRI socket
	Dir     string // contains config.toml, log, root and state
	Subnet  string // subnet of the pods' addresses
	Bridge  string // name of the pods' bridge
	RuncDir string // runc's --root; the containers are in its directory k8s.io

	opts    Options
	tempDir bool
	before  map[string]bool // the sharedDirs that existed at the start
	proc    *process        // nil while halted
}

// process is one run of the containerd program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has exited
	err  error         // of exec.Cmd.Wait; read it only after done is closed
}

// New starts a containerd that runs until the end of the test. If containerd cannot run here, New
// skips the test. If CI=true is set, it fails the test instead.
func New(t testing.TB, o Options) *Containerd {
	t.Helper()
	Required(t)
	if o.Logf == nil {
		o.Logf = t.Logf
	}
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of containerd's log:\n%s", c.LogTail(30))
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop containerd: %v", err)
		}
	})
	return c
}

// Required skips the test if the runtime of [Name] cannot run here. If CI=true is
// set, it fails the test instead.
func Required(t testing.TB) {
	t.Helper()
	root, err := repository()
	if err == nil {
		err = missing(Name(), filepath.Join(root, "build", "bin"))
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("no containerd, and CI=true: %v", err)
	default:
		t.Skipf("no containerd: %v", err)
	}
}

// Start starts a containerd and imports o.Archives. First it removes the pods and files
// of an earlier containerd in the same directory.
func Start(ctx context.Context, o Options) (*Containerd, error) {
	c, err := prepare(o)
	if err != nil {
		return nil, fmt.Errorf("prepare containerd: %w", err)
	}
	if err := c.begin(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func prepare(o Options) (*Containerd, error) {
	temp := o.Dir == ""
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := missing(o.Runtime, o.BinDir); err != nil {
		return nil, err
	}
	return &Containerd{
		Socket: filepath.Join(o.Dir, sockets[o.Runtime]), Dir: o.Dir, Subnet: o.Subnet, Bridge: o.bridge(),
		RuncDir: filepath.Join(o.Dir, "runc"), opts: o, tempDir: temp,
	}, nil
}

func (c *Containerd) begin(ctx context.Context) error {
	if err := c.clearLeftovers(); err != nil {
		return fmt.Errorf("clear up after an earlier run in %s: %w", c.Dir, err)
	}
	c.before = sharedNow()
	before := strings.Join(slices.Sorted(maps.Keys(c.before)), "\n")
	if err := os.WriteFile(filepath.Join(c.Dir, "before"), []byte(before), 0o600); err != nil {
		return err
	}
	if err := c.configure(ctx); err != nil {
		return err
	}
	if err := c.Resume(); err != nil {
		return err
	}
	archives := c.opts.Archives
	if archives == nil {
		var err error
		archives, err = sampleimage.Build(ctx, c.opts.Repository, filepath.Join(c.opts.Repository, "build", "images"))
		if err != nil {
			return err
		}
	}
	for _, a := range archives {
		if err := c.Import(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// clearLeftovers ends a containerd that a killed process has left in c.Dir, and removes its
// pods and files.
func (c *Containerd) clearLeftovers() error {
	if _, err := os.Stat(filepath.Join(c.Dir, "before")); err != nil {
		return nil
	}
	pid, err := os.ReadFile(filepath.Join(c.Dir, "pid"))
	if err == nil {
		if err := c.endForeign(strings.TrimSpace(string(pid))); err != nil {
			return err
		}
	}
	c.opts.Logf("clearing up after an earlier run in %s", c.Dir)
	if b, err := os.ReadFile(filepath.Join(c.Dir, "before")); err == nil {
		c.before = map[string]bool{}
		for line := range strings.Lines(string(b)) {
			c.before[strings.TrimSuffix(line, "\n")] = true
		}
	}
	if err := c.Resume(); err != nil {
		c.opts.Logf("cannot start containerd with its old state: %v", err)
	}
	return c.clear()
}

// endForeign ends a containerd that another process started with the configuration in c.Dir. pid
// is the recorded process ID. If another program has that ID by now, endForeign does nothing.
func (c *Containerd) endForeign(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 {
		return nil
	}
	config := c.marker()
	for sig, wait := syscall.SIGTERM, 50; ; sig, wait = syscall.SIGKILL, 500 {
		for range wait {
			cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if err != nil || !strings.Contains(string(cmdline), config) {
				return nil
			}
			if err := syscall.Kill(n, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
		if sig == syscall.SIGKILL {
			return fmt.Errorf("containerd (process %d) does not exit after SIGKILL", n)
		}
	}
}

// Resume starts containerd again after Kill or Halt, and waits until it answers.
// Running containers stay.
func (c *Containerd) Resume() error {
	if c.proc != nil {
		return errors.New("containerd is already running")
	}
	program, args, err := c.program()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(c.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "PATH="+c.opts.BinDir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C reaches only this process
	err = cmd.Start()
	_ = log.Close() // containerd has a descriptor of its own
	if err != nil {
		return err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	c.proc = p
	if err := os.WriteFile(filepath.Join(c.Dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	return c.await(p)
}

// await waits until the runtime reports that it and its network are ready.
func (c *Containerd) await(p *process) error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rt := runtimeapi.NewRuntimeServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := rt.Status(once, &runtimeapi.StatusRequest{})
		cancel()
		if err == nil {
			err = notReady(status)
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("containerd exited (%v); last lines of its log:\n%s", p.err, c.LogTail(5))
		case <-ctx.Done():
			return fmt.Errorf("containerd is not ready: %w; last lines of its log:\n%s", err, c.LogTail(5))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func notReady(s *runtimeapi.StatusResponse) error {
	for _, cond := range s.GetStatus().GetConditions() {
		if !cond.GetStatus() && (cond.GetType() == runtimeapi.RuntimeReady || cond.GetType() == runtimeapi.NetworkReady) {
			return fmt.Errorf("%s: %s", cond.GetReason(), cond.GetMessage())
		}
	}
	return nil
}

// Kill ends containerd with SIGKILL. Containers keep running.
func (c *Containerd) Kill() error { return c.end(syscall.SIGKILL) }

// Halt ends containerd with SIGTERM. Containers keep running.
func (c *Containerd) Halt() error { return c.end(syscall.SIGTERM) }

// PowerOff ends containerd and all containers at once, and removes what is not kept over a reboot of the
// machine. Resume starts containerd after the reboot.
func (c *Containerd) PowerOff() error {
	err := c.Kill()
	c.deleteContainers()
	c.killShims()
	return errors.Join(err, UnmountBelow(filepath.Join(c.Dir, "state")), os.RemoveAll(filepath.Join(c.Dir, "state")))
}

// Restart calls Halt and then Resume.
func (c *Containerd) Restart() error {
	if err := c.Halt(); err != nil {
		return err
	}
	return c.Resume()
}

// Freeze stops containerd with SIGSTOP: calls hang until Thaw.
func (c *Containerd) Freeze() error { return c.signal(syscall.SIGSTOP) }

// Thaw continues a frozen containerd.
func (c *Containerd) Thaw() error { return c.signal(syscall.SIGCONT) }

func (c *Containerd) signal(s syscall.Signal) error {
	if c.proc == nil {
		return errors.New("containerd is not running")
	}
	return c.proc.cmd.Process.Signal(s)
}

// end sends the signal s to containerd and waits for its exit. After 15 s it sends
// SIGKILL.
func (c *Containerd) end(s syscall.Signal) error {
	p := c.proc
	if p == nil {
		return nil
	}
	c.proc = nil
	_ = p.cmd.Process.Signal(s) // fails if containerd has exited
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	if err := os.Remove(filepath.Join(c.Dir, "pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// PID returns the process ID of containerd. It returns 0 while containerd is halted.
func (c *Containerd) PID() int {
	if c.proc == nil {
		return 0
	}
	return c.proc.cmd.Process.Pid
}

// LogTail returns the last n lines of containerd's log.
func (c *Containerd) LogTail(n int) string {
	b, err := os.ReadFile(filepath.Join(c.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (c *Containerd) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// each calls f for all items, at most 8 at the same time, and joins the errors.
func each[T any](items []T, f func(T) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		slots = make(chan struct{}, 8)
	)
	for _, it := range items {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := f(it); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
