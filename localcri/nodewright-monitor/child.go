//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// environment returns the environment of the executor. It leaves out variables for the Go runtime
// of this process, and variables of a service manager.
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

// protect sets whether the kernel's OOM killer spares this process. Forked processes inherit the
// setting.
func (l *loop) protect(yes bool) {
	score := "0"
	if yes {
		score = "-999"
	}
	if l.oomScore >= 0 {
		_, _ = unix.Pwrite(l.oomScore, []byte(score), 0)
	}
}

// fork executes a command in a session of its own, with default signals, an ordinary OOM score and
// the resource limits of this process, which it has from its starter.
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

// death is the end of a process.
type death struct {
	status     unix.WaitStatus
	at         time.Time
	unexecuted bool // see stat; set only if the process failed
}

// refused reports whether the kernel refused to execute the program of the container. It returns
// false for a process that was killed before.
func (d death) refused() bool {
	return d.unexecuted && d.status.Exited() && d.status.ExitStatus() != 0
}

// reap reaps every child that has ended. The ends of unknown children are kept in orphans.
func (l *loop) reap() {
	for {
		next, failed := lookChild()
		if next <= 0 {
			return
		}
		d := death{}
		if failed { // before the child is reaped, since its PID may be reused afterwards
			s, ok := statOf(next)
			d.unexecuted = ok && s.unexecuted
		}
		pid, err := unix.Wait4(next, &d.status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		d.at = time.Now()
		if ended := l.children[pid]; ended != nil {
			delete(l.children, pid)
			ended(d)
			continue
		}
		l.orphans.add(pid, d)
	}
}

// lookChild returns a child that has ended, without reaping it; 0 if there is none. failed reports
// whether it exited with a status other than 0.
func lookChild() (pid int, failed bool) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, false
		}
		break
	}
	// sigaction(2): the three numbers are followed by a union, aligned like a pointer, that begins
	// with the PID, the user and the status.
	const word = unsafe.Sizeof(uintptr(0))
	const union = (3*unsafe.Sizeof(int32(0)) + word - 1) / word * word
	numbers := (*[3]int32)(unsafe.Add(unsafe.Pointer(&info), union)) //nolint:gosec // x/sys has no names for them
	const exited = 1                                                 // CLD_EXITED
	return int(numbers[0]), info.Code == exited && numbers[2] != 0
}

// orphans are unknown children that have ended. Each may be the process whose PID a running
// executor is about to report. So an orphan is kept until every executor has ended that was
// running when the orphan ended.
type orphans struct {
	next    uint64
	running []uint64 // executors, the oldest first
	ended   map[int]orphan
}

type orphan struct {
	death
	seq uint64
}

// maxOrphans limits the kept orphans: a container that shares the PID namespace of the machine can
// create any number of them.
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

func (o *orphans) add(pid int, d death) {
	if len(o.running) == 0 {
		return
	}
	if o.ended == nil {
		o.ended = map[int]orphan{}
	}
	if len(o.ended) >= maxOrphans {
		for old := range o.ended { // any one: each may be the one that is needed
			delete(o.ended, old)
			break
		}
	}
	o.ended[pid] = orphan{death: d, seq: o.next}
}

func (o *orphans) take(pid int) (orphan, bool) {
	e, ok := o.ended[pid]
	delete(o.ended, pid)
	return e, ok
}

// exitCode returns the exit code of the CRI for a status: 128 plus the signal for a killed
// process.
func exitCode(status unix.WaitStatus) int32 {
	if status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(status.ExitStatus())
}
