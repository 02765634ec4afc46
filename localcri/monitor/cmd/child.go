//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// environment is what is handed to the executor: nothing that was meant for this
// process' own runtime, and no descriptors of a service manager.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES":
		default:
			env = append(env, e)
		}
	}
	return env
}

// protect sets whether the kernel spares this process when memory is short. What
// is forked inherits it.
func (l *loop) protect(yes bool) {
	score := "0"
	if yes {
		score = "-999"
	}
	if l.oomScore >= 0 {
		_, _ = unix.Pwrite(l.oomScore, []byte(score), 0)
	}
}

// fork executes a command in a session of its own, with default signals, an
// ordinary OOM score and this process' limits, which are its starter's.
func (l *loop) fork(argv []string, dir string, files [3]int) (int, error) {
	if len(argv) == 0 {
		return 0, syscall.EINVAL
	}
	if dir == "" {
		dir = "/"
	}
	l.protect(false)
	defer l.protect(true)
	return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Dir: dir, Env: l.env, Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// reap takes the status of every child that has ended, known or not.
func (l *loop) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		now := time.Now()
		if ended := l.children[pid]; ended != nil {
			delete(l.children, pid)
			ended(status, now)
			continue
		}
		l.orphans.add(pid, status, now)
	}
}

// orphans are children of which nobody knew when they ended. Each may be the
// process whose PID an executor is about to tell, so they are kept as long as one
// runs that ran at that time.
type orphans struct {
	next    uint64
	running []uint64 // executors, the oldest first
	ended   map[int]orphan
}

type orphan struct {
	status unix.WaitStatus
	at     time.Time
	seq    uint64
}

// maxOrphans is how many are kept: a container that shares the machine's PIDs can
// make as many as it likes.
const maxOrphans = 4096

func (o *orphans) begin() uint64 {
	o.next++
	o.running = append(o.running, o.next)
	return o.next
}

func (o *orphans) end(executor uint64) {
	for i, n := range o.running {
		if n == executor {
			o.running = append(o.running[:i], o.running[i+1:]...)
			break
		}
	}
	if len(o.running) == 0 {
		o.ended = nil
		return
	}
	for pid, e := range o.ended {
		if e.seq < o.running[0] {
			delete(o.ended, pid)
		}
	}
}

func (o *orphans) add(pid int, status unix.WaitStatus, at time.Time) {
	if len(o.running) == 0 {
		return
	}
	if o.ended == nil {
		o.ended = map[int]orphan{}
	}
	if len(o.ended) >= maxOrphans {
		for old := range o.ended { // any: there is no telling them apart
			delete(o.ended, old)
			break
		}
	}
	o.ended[pid] = orphan{status: status, at: at, seq: o.next}
}

func (o *orphans) take(pid int) (orphan, bool) {
	e, ok := o.ended[pid]
	delete(o.ended, pid)
	return e, ok
}

// exitCode is what the CRI calls a status: 128 plus the signal for those killed.
func exitCode(status unix.WaitStatus) int32 {
	if status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(status.ExitStatus())
}
