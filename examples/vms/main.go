// Vms manages simulated virtual machines with podworker/serial: it boots, resizes and powers
// off machines. Machines are handled in parallel, but each machine has only one step at a time.
//
//	go run ./examples/vms
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nodewright/nodewright/podworker/serial"
)

// Spec is the desired state of a machine.
type Spec struct {
	CPUs int
	Off  bool
	Gone chan<- struct{} // closed when the machine is off; may be nil
}

// Stages of a machine.
const (
	booting serial.Stage = iota
	running
)

type call = serial.Call[string, Spec]

// Host runs the simulated machines. A real host would call a hypervisor.
type Host struct {
	mu   sync.Mutex
	cpus map[string]int
	log  func(format string, args ...any)
}

// Handle makes one step towards the desired state of a machine, and returns the next step.
func (h *Host) Handle(ctx context.Context, c *call) (serial.Next, error) {
	switch {
	case c.Update.Off:
		h.powerOff(c.Key)
		if c.Update.Gone != nil {
			close(c.Update.Gone)
		}
		return serial.Done(), nil
	case c.Stage == booting:
		if err := h.boot(ctx, c); err != nil {
			return serial.Rest(), fmt.Errorf("boot VM: %w", err)
		}
		return serial.Enter(running), nil
	default:
		h.resize(c.Key, c.Update.CPUs)
		return serial.Again(time.Minute, "health check"), nil
	}
}

// boot simulates a boot, which takes some time. It returns an error if ctx ends first. The
// first boot of a machine with more than 8 CPUs fails.
func (h *Host) boot(ctx context.Context, c *call) error {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.Update.CPUs > 8 && c.Failures == 0 {
		return errors.New("no room")
	}
	h.set(c.Key, 1)
	h.log("%s has booted", c.Key)
	return nil
}

func (h *Host) resize(name string, cpus int) {
	h.mu.Lock()
	was := h.cpus[name]
	h.mu.Unlock()
	if was != cpus {
		h.set(name, cpus)
		h.log("%s has %d CPUs now, it had %d", name, cpus, was)
	}
}

func (h *Host) powerOff(name string) {
	h.mu.Lock()
	delete(h.cpus, name)
	h.mu.Unlock()
	h.log("%s is off", name)
}

func (h *Host) set(name string, cpus int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cpus[name] = cpus
}

// drive creates three machines, changes one, and powers all off.
func drive(log func(format string, args ...any)) error {
	host := &Host{cpus: map[string]int{}, log: log}
	machines, err := serial.New(serial.Config[string, Spec]{
		Handle:     host.Handle,
		Interrupts: func(_, next Spec) bool { return next.Off },
		// At most two machines boot at a time. Other steps have no limit.
		Limit:   2,
		Limited: func(c *call) bool { return c.Stage == booting && !c.Update.Off },
		Backoff: serial.Backoff{First: 10 * time.Millisecond},
		OnError: func(name string, err error, _ int, retry time.Duration) {
			log("%s: %v; again in %v", name, err, retry)
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- machines.Run(ctx) }()

	for i, name := range []string{"web", "db", "build"} {
		machines.Update(name, Spec{CPUs: 4 * (i + 1)})
	}
	time.Sleep(200 * time.Millisecond)
	for _, m := range machines.List() {
		log("%s: stage %d, %v, next %s", m.Key, m.Stage, m.Activity, m.Reason)
	}
	machines.Update("web", Spec{CPUs: 2})
	for _, name := range []string{"web", "db", "build"} {
		gone := make(chan struct{})
		machines.Update(name, Spec{Off: true, Gone: gone})
		<-gone
	}
	cancel()
	return <-ended
}

func main() {
	err := drive(func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
