package sim

import (
	"errors"
	"strings"
	"sync"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/durable/durabletest"
)

// disk is that of the small files that outlast the agent, which are real ones in a
// directory of the machine, with the journal of what outlasts a loss of power.
type disk struct {
	m *machine

	journal *durabletest.Journal

	mu     sync.Mutex
	mode   string // "", fail or hang
	failed bool   // at the agent's start, which is when half-written files are removed
	healed chan struct{}
}

func newDisk(m *machine) *disk {
	return &disk{m: m, journal: durabletest.New(1)}
}

var errDisk = errors.New("sim: input/output error")

// ask is told of each step before it is taken.
func (d *disk) ask(c durable.Change) error {
	d.m.mu.Lock()
	l := d.m.live
	d.m.mu.Unlock()
	if l == nil {
		return errDead
	}
	if c.Op != durable.OpSyncDir {
		if err := l.effect("disk", strings.TrimPrefix(c.Path, d.m.dir)); err != nil {
			return err
		}
	}
	d.mu.Lock()
	mode, healed := d.mode, d.healed
	d.mu.Unlock()
	switch mode {
	case "fail":
		return errDisk
	case "hang":
		select {
		case <-healed:
		case <-l.ctx.Done():
		}
		if l.isDead() {
			return errDead
		}
	}
	d.journal.Note(c)
	return nil
}

// losePower leaves of every change that was not synced what a disk may leave.
func (d *disk) losePower() { d.journal.LosePower() }

// begins notes that an agent begins.
func (d *disk) begins() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = d.mode == "fail"
}

// mayHave reports whether a half-written file may be there until the agent's next start.
func (d *disk) mayHave(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed && strings.HasSuffix(name, durable.TempSuffix)
}

// strike has the disk fail or hang until it is struck with "ok".
func (d *disk) strike(mode string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.healed != nil {
		close(d.healed)
		d.healed = nil
	}
	if d.mode = mode; mode == "ok" {
		d.mode = ""
	}
	if mode == "hang" {
		d.healed = make(chan struct{})
	}
}
