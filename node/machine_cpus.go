package node

import (
	"os"
	"runtime"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// onlineCPUs is where Linux lists the CPUs that are online.
const onlineCPUs = "/sys/devices/system/cpu/online"

// CPUs is how many CPUs are online. It is not how many this process may use: one
// that systemd keeps to some of them (CPUAffinity) still serves the whole machine.
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
