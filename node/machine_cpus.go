package node

import (
	"context"
	"runtime"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/numa"
)

// CPUs returns the number of online CPUs of the machine, even if this process may
// use only some of them (CPUAffinity of systemd).
func CPUs() int { return countCPUs(kernel.This) }

func countCPUs(machine *kernel.Reader) int {
	text, err := machine.OnlineCPUs(context.Background())
	if err != nil {
		return runtime.NumCPU()
	}
	set, err := numa.ParseCPUs(text)
	if err != nil || set.Empty() {
		return runtime.NumCPU()
	}
	return set.Len()
}
