package nspin

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread on which no other goroutine runs, and waits for its end. f
// returns false if it could not restore the thread's namespaces; the thread then ends. The
// thread is never the main thread, which cannot end and whose namespaces /proc/PID/ns
// shows.
func OnThread(f func() (back bool)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			OnThread(f) // another thread: this goroutine occupies the main thread
			runtime.UnlockOSThread()
		} else if f() {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}
