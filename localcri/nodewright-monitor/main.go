//go:build linux

// Command nodewright-monitor is the monitor of package localcri: one small process per pod that is
// the parent of its containers. Package localcri embeds the built program, and starts it.
//
//	nodewright-monitor monitor   descriptor 3 is the socket, 4 the lock
//	nodewright-monitor pause     as PID 1 of a PID namespace that containers share
//
// It uses little of the standard library: everything that is linked takes memory once per pod.
package main

import (
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

const usage = "usage: nodewright-monitor monitor|pause, as package localcri starts it"

const (
	listenFD = 3 // the socket that the starter has created
	lockFD   = 4 // held as long as this process lives
)

func main() {
	// The kernel signals the end of a child to the thread that created it, and the end of an
	// inherited child to the first thread. A hanging disk must not block such a thread in the
	// kernel. So the loop has the first thread for itself.
	runtime.LockOSThread()
	if len(os.Args) < 2 {
		fail(usage)
	}
	if runtime.GOMAXPROCS(0) != 1 {
		runtime.GOMAXPROCS(1)
	}
	switch os.Args[1] {
	case "pause":
		pause()
	case "monitor":
		if err := serve(); err != nil {
			fail(err.Error())
		}
	default:
		fail(usage)
	}
}

func fail(message string) {
	_, _ = unix.Write(2, []byte(message+"\n"))
	os.Exit(2)
}

// pause is PID 1 of a PID namespace: it reaps children, and ends on SIGTERM or SIGINT.
func pause() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGCHLD)
	for {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err != unix.EINTR && pid <= 0 {
				break
			}
		}
		if s := <-signals; s != unix.SIGCHLD {
			return
		}
	}
}

func serve() error {
	l, err := newLoop()
	if err != nil {
		return err
	}
	unix.CloseOnExec(listenFD)
	unix.CloseOnExec(lockFD)
	closeInherited()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	unix.Umask(0o022)
	l.oomScore, _ = unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	l.protect(true)
	l.follow()
	if err := unix.SetNonblock(listenFD, true); err != nil {
		return err
	}
	if l.door, err = l.poll.add(listenFD, unix.EPOLLIN, func(uint32) { l.accept() }, nil); err != nil {
		return err
	}
	l.run()
	return nil
}

// closeInherited closes descriptors that the starter passed on by mistake. They are not
// close-on-exec, unlike all descriptors that this process has opened.
func closeInherited() {
	for _, fd := range numbersIn("/proc/self/fd") {
		if fd <= lockFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// follow passes signals to the loop. Signals of a terminal, a session or a service manager do not
// end a monitor that has containers. The caught signals have their default actions in executed
// programs.
func (l *loop) follow() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM,
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE, unix.SIGXFSZ, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM)
	go func() {
		for s := range signals {
			switch s {
			case unix.SIGCHLD:
				l.post(l.reap)
			case unix.SIGTERM:
				l.post(l.terminate)
			}
		}
	}()
}
