package footprint

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestCalmMonitor(t *testing.T) {
	tid := monitorThread()
	if tid == "" {
		t.Fatal("no thread of the monitor")
	}
	file := "/proc/" + tid + "/timerslack_ns"
	before, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0) })
	calmMonitor()
	has, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(has)); got != strconv.Itoa(monitorSlack) {
		t.Errorf("slack of the monitor's thread: %s ns", got)
	}
}

// The monitor's thread is the oldest one but for the first.
func TestMonitorThread(t *testing.T) {
	started := func(tid string) int {
		b, err := os.ReadFile("/proc/self/task/" + tid + "/stat")
		if errors.Is(err, fs.ErrNotExist) {
			return -1 // it has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		// proc_pid_stat(5): the 22nd field, the 20th after the name.
		n, err := strconv.Atoi(strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[19])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	monitor := monitorThread()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if at := started(e.Name()); e.Name() != strconv.Itoa(os.Getpid()) && at >= 0 && at < started(monitor) {
			t.Errorf("thread %s is older than %s", e.Name(), monitor)
		}
	}
}
