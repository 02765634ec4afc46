package footprint

import (
	"os"
	"strconv"
)

// monitorSlack is by how much the thread of the Go runtime's monitor may wake up too late,
// in nanoseconds.
const monitorSlack = 4_000_000

// calmMonitor lets the monitor of the Go runtime (sysmon) oversleep a little. While
// goroutines come and go, it wakes up every 20 µs, which the kernel's usual slack makes
// 70 µs of: that was a seventh of all CPU while pods start, and with a slack of 1 ms still 4%.
// It looks for goroutines that have computed for 10 ms, and for those that have blocked in a
// system call while others wait for their place. The latter may wait 4 ms longer now; after
// that long without anything to do, the monitor itself would sleep for longer.
//
// It does nothing where the kernel does not let it. Threads and processes that the monitor's
// thread makes inherit the slack (PR_SET_TIMERSLACK, prctl(2)): those of localcri's
// containers descend from a process that sets its own.
func calmMonitor() {
	if tid := monitorThread(); tid != "" {
		// proc_pid_timerslack_ns(5). A thread is found by its ID as a process is.
		_ = os.WriteFile("/proc/"+tid+"/timerslack_ns", strconv.AppendInt(nil, monitorSlack, 10), 0)
	}
}

// monitorThread is the ID of the monitor's thread, "" if that cannot be told: the first one
// that the runtime makes, before any package is initialized, and it never ends. The kernel
// lists threads in the order in which they were made.
func monitorThread() string {
	dir, err := os.Open("/proc/self/task") //nolint:forbidigo // the kernel
	if err != nil {
		return ""
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(2) //nolint:forbidigo // two of the kernel
	if err != nil || len(names) < 2 || names[0] != strconv.Itoa(os.Getpid()) {
		return ""
	}
	return names[1]
}
