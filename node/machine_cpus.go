package node

import (
	"os"
	"runtime"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// onlineCPUs is the kernel's list of online CPUs.
const onlineCPUs = "/sys/devices/system/cpu/online"

// CPUs returns the number of online CPUs of the machine, even if this process may
// use only some of them (CPUAffinity of systemd).
func CPUs() int { return countCPUs(readOnline) }

func readOnline() ([]byte, error) { return os.ReadFile(onlineCPUs) } //nolint:forbidigo // the kernel

func countCPUs(read func() ([]byte, error)) int {
	b, err := read()
	if err != nil {
		return runtime.NumCPU()
	}
	set, err := numa.ParseCPUs(strings.TrimSpace(string(b)))
	if err != nil || set.Empty() {
		return runtime.NumCPU()
	}
	return set.Len()
}
