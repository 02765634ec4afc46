package nspin

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread of its own. If f returns false, it could not restore
// the thread's namespaces, and the thread ends. The thread is never the main one,
// which cannot end, and whose namespaces /proc/PID/ns shows.
func OnThread(f func() (back bool)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			OnThread(f) // elsewhere: this one is taken
			runtime.UnlockOSThread()
		} else if f() {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}
