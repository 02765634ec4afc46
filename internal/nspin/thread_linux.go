package nspin

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread that nothing else runs on meanwhile. If f says
// that it did not come back, the thread ends. It is never the first one, which
// cannot end, and whose namespaces others take for the program's.
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
