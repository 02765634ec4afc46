package sim

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

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
	synced map[string]bool      // files whose content was synced
	since  map[string]time.Time // of renames of such files whose directory was not synced
}

func newDisk(m *machine) *disk {
	return &disk{m: m, journal: durabletest.New(1), synced: map[string]bool{}, since: map[string]time.Time{}}
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
	d.note(c)
	return nil
}

// losePower leaves of every change that was not synced what a disk may leave.
func (d *disk) losePower() { d.journal.LosePower() }

// begins notes that an agent begins.
func (d *disk) begins() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = d.mode == "fail"
	clear(d.since) // the one before died
}

// mayHave reports whether a half-written file may be there until the agent's next start.
func (d *disk) mayHave(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed && strings.HasSuffix(name, durable.TempSuffix)
}

// note keeps which files should outlast a loss of power soon.
func (d *disk) note(c durable.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch c.Op {
	case durable.OpWrite:
		d.synced[c.Path] = c.Sync
	case durable.OpRename:
		if d.synced[c.Path] {
			d.since[c.To] = time.Now()
		}
	case durable.OpRemove:
		delete(d.since, c.Path)
	case durable.OpSyncDir:
		maps.DeleteFunc(d.since, func(path string, _ time.Time) bool { return filepath.Dir(path) == filepath.Clean(c.Path) })
	}
}

// unsafe are those that have not been made to for long.
func (d *disk) unsafe() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, since := range d.since {
		// Not all files are removed by steps that are reported here.
		if _, err := os.Lstat(path); err == nil && d.mode == "" && time.Since(since) > startBound {
			out = append(out, strings.TrimPrefix(path, d.m.dir))
		}
	}
	return out
}

// inject makes the disk fail or hang, until it is called with "ok".
func (d *disk) inject(mode string) {
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
