//go:build linux

package monitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PauseArgument is the argument with which the monitor program becomes PID 1 of a PID namespace
// that containers share: it reaps zombies, and exits on SIGTERM. It needs no other file.
const PauseArgument = "pause"

// launchRetry is the interval at which Launch tries to connect while another process holds the
// lock.
const launchRetry = 10 * time.Millisecond

// Launch starts the monitor of a sandbox, or connects to the running one. Client.State returns
// the containers that the monitor has. A monitor has a session of its own and inherits no
// descriptors, so it continues when its starter ends.
func Launch(ctx context.Context, cfg Config, sandbox string) (*Client, error) {
	dir, err := makeDir(cfg, sandbox)
	if err != nil {
		return nil, err
	}
	for {
		lock, err := lockDir(dir)
		if err == nil {
			defer closeFile(lock) // the monitor's duplicate holds the lock
			return launch(ctx, cfg, sandbox, dir, lock)
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		c, _, err := Connect(ctx, cfg, sandbox)
		if !errors.Is(err, ErrGone) {
			return c, err
		}
		select { // the holder is about to listen or to exit
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(launchRetry):
		}
	}
}

// Connect connects to the monitor of a sandbox and asks for its state. The error
// is ErrGone if none runs.
func Connect(ctx context.Context, cfg Config, sandbox string) (*Client, State, error) {
	if err := check(cfg, sandbox); err != nil {
		return nil, State{}, err
	}
	l, err := dial(filepath.Join(cfg.StateDir, "mon", sandbox))
	if err != nil {
		return nil, State{}, err
	}
	c, err := newClient(ctx, cfg, sandbox, l)
	if err != nil {
		return nil, State{}, err
	}
	return c, c.state, nil
}

func check(cfg Config, sandbox string) error {
	switch {
	case !filepath.IsAbs(cfg.StateDir):
		return fmt.Errorf("StateDir %q: an absolute path is needed", cfg.StateDir)
	case sandbox == "" || len(sandbox) > 128 || sandbox == "." || sandbox == ".." || strings.ContainsAny(sandbox, "/\x00"):
		return fmt.Errorf("sandbox %q: 1 to 128 bytes without a slash are allowed", sandbox)
	}
	return nil
}

func makeDir(cfg Config, sandbox string) (string, error) {
	if err := check(cfg, sandbox); err != nil {
		return "", err
	}
	if !filepath.IsAbs(cfg.Program) {
		return "", fmt.Errorf("Program %q: an absolute path is needed", cfg.Program) //nolint:staticcheck // the field's name
	}
	dir := filepath.Join(cfg.StateDir, "mon", sandbox)
	return dir, os.MkdirAll(dir, 0o700)
}

// removeDir removes the files that Launch creates. Other files stay.
func removeDir(cfg Config, sandbox string) error {
	dir := filepath.Join(cfg.StateDir, "mon", sandbox)
	for _, name := range []string{"socket", "lock", "crash"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// lockDir takes the lock that a monitor holds as long as it runs. The error is EWOULDBLOCK if
// another process holds it.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		f := os.NewFile(uintptr(fd), path)
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			return nil, err
		}
		var held, named unix.Stat_t
		if unix.Fstat(fd, &held) == nil && unix.Lstat(path, &named) == nil && held.Ino == named.Ino && held.Dev == named.Dev {
			return f, nil
		}
		_ = f.Close() // removed between open and lock
	}
}

// address returns the address of the socket. It names the directory by its descriptor, since the
// path may be longer than a socket address allows.
func address(dir int) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/socket"}
}

func dial(dir string) (*link, error) {
	d, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(d) //nolint:errcheck // nothing was written
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, address(d))
	switch {
	case errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT):
		err = ErrGone
	case err != nil:
		err = fmt.Errorf("connect to monitor: %w", err)
	default:
		peer, e := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err = e; err == nil && peer.Uid != uint32(os.Geteuid()) {
			err = fmt.Errorf("connect to monitor: the socket's peer has uid %d", peer.Uid)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return newLink(fd)
}

// listen creates the socket. Clients may connect before the monitor runs.
func listen(dir string) (*os.File, error) {
	d, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(d) //nolint:errcheck // nothing was written
	if err := unix.Unlinkat(d, "socket", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, address(d))
	if err == nil {
		err = unix.Fchmodat(d, "socket", 0o600, 0)
	}
	if err == nil {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listen for monitor: %w", err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

// launch starts a monitor. The caller holds the lock.
func launch(ctx context.Context, cfg Config, sandbox, dir string, lock *os.File) (*Client, error) {
	socket, err := listen(dir)
	if err != nil {
		return nil, err
	}
	defer closeFile(socket)
	null, err := openFor(os.DevNull, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	defer closeFile(null)
	crash, err := openFor(filepath.Join(dir, "crash"), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return nil, err
	}
	defer closeFile(crash)
	pidfd := -1
	pid, err := syscall.ForkExec(cfg.Program, []string{cfg.Program, "monitor"}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   environment(),
		Files: []uintptr{null.Fd(), null.Fd(), crash.Fd(), socket.Fd(), lock.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err != nil {
		return nil, fmt.Errorf("start monitor %s: %w", cfg.Program, err)
	}
	defer func() { go reap(pid, pidfd) }()
	_ = socket.Close() // only the monitor keeps its duplicate, so its death closes the socket
	l, err := dial(dir)
	if err == nil {
		var c *Client
		if c, err = newClient(ctx, cfg, sandbox, l); err == nil {
			return c, nil
		}
	}
	_ = unix.Kill(pid, unix.SIGKILL) // not reaped yet, so the PID is still its own
	if errors.Is(err, ErrGone) {
		err = fmt.Errorf("monitor %s ended at once: %w", cfg.Program, err)
	}
	return nil, err
}

func closeFile(f *os.File) { _ = f.Close() }

// openFor opens a file for the monitor to inherit.
func openFor(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// environment returns the environment of the monitor. Two variables limit the Go runtime to one
// thread of Go code, and disable the periodic garbage collection, which would wake an idle
// process. The monitor passes only the other variables to the executor.
func environment() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return []string{"PATH=" + path, "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=8MiB", "GOTRACEBACK=single", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}
}

// reap waits for the exit of a monitor that this process started. It blocks no thread.
func reap(pid, pidfd int) {
	if pidfd >= 0 {
		_ = unix.SetNonblock(pidfd, true)
		f := os.NewFile(uintptr(pidfd), "monitor")
		defer closeFile(f)
		if raw, err := f.SyscallConn(); err == nil {
			polled := false
			_ = raw.Read(func(fd uintptr) bool {
				p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				n, err := unix.Poll(p, 0)
				polled = err == nil && n > 0
				return polled
			})
		}
	}
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
