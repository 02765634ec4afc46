package nspin

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread on which no other goroutine runs. f returns false if it
// could not restore the thread's namespaces; the thread then ends. It is never the main
// thread, since that cannot end, and since /proc/PID/ns shows its namespaces.
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
