//go:build !race

package hostile

import (
	"slices"
	"testing"
	"time"
)

// Limits that hold during every attack.
const (
	maxMemory      = 256 << 20
	maxLateness    = 2 * time.Second // of a probe every second, or of a restart
	maxDescriptors = 500
	maxThreads     = 200
)

// attack is a row of the table.
type attack struct {
	name string
	// args are more of the agent's; none.
	args []string
	// run begins the attack. The machine has its bystanders by then.
	run func(m *machine)
	// lasts is how long it goes on; 8 s.
	lasts time.Duration
	// after checks what became of it; nothing.
	after func(m *machine)
}

func TestAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: each attack takes 10 s")
	}
	for _, a := range slices.Concat(attacks(), viewers(), plugins()) {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.args = a.args
			m.start()
			m.placeBystanders()
			a.run(m)
			d := a.lasts
			if d == 0 {
				d = 8 * time.Second
			}
			late := m.watch(d)
			if a.after != nil {
				a.after(m)
			}
			peak, fds, threads := m.peak(), m.descriptors(), m.threads()
			t.Logf("peak %d MiB, %d descriptors, %d threads, probes at most %v late, restarts %v, the test itself %v", peak>>20, fds, threads, late.probe, late.restart, late.clock)
			if peak > maxMemory || fds > maxDescriptors || threads > maxThreads {
				t.Errorf("peak %d MiB, %d descriptors, %d threads; want at most %d MiB, %d and %d", peak>>20, fds, threads, maxMemory>>20, maxDescriptors, maxThreads)
			}
			if limit := maxLateness + 4*late.clock; late.probe > limit || late.restart > limit {
				t.Errorf("a probe was %v late, a restart took %v; want at most %v", late.probe, late.restart, limit)
			}
			m.stop()
		})
	}
}
