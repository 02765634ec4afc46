package sim

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nodewright/nodewright/internal/durable"
)

// disk is the journal of the small files that outlast the agent, which
// are real ones in a directory of the machine. Of each it knows what surely
// outlasts a loss of power, and what else has been written since.
type disk struct {
	m *machine

	mu     sync.Mutex
	mode   string // "", fail or hang
	failed bool   // at the agent's start, which is when half-written files are removed
	healed chan struct{}
	safe   map[string]fileState // of files with changes whose directory was not synced since
	synced map[string]bool      // files whose content was synced
	rnd    *rand.Rand
}

// fileState is a file, or none.
type fileState struct {
	there bool
	data  []byte
}

func newDisk(m *machine) *disk {
	return &disk{m: m, safe: map[string]fileState{}, synced: map[string]bool{}, rnd: rand.New(rand.NewPCG(1, 2))}
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
	d.mu.Lock()
	defer d.mu.Unlock()
	switch c.Op {
	case durable.OpWrite:
		d.touch(c.Path)
		d.synced[c.Path] = c.Sync
	case durable.OpRename:
		d.touch(c.Path)
		d.touch(c.To)
		d.synced[c.To] = d.synced[c.Path]
	case durable.OpRemove:
		d.touch(c.Path)
	case durable.OpSyncDir:
		for path := range d.safe {
			if filepath.Dir(path) == filepath.Clean(c.Path) && (d.synced[path] || !read(path).there) {
				delete(d.safe, path)
			}
		}
	}
	return nil
}

// touch keeps what is safe of a file before its first change.
func (d *disk) touch(path string) {
	if _, known := d.safe[path]; !known {
		d.safe[path] = read(path)
	}
}

func read(path string) fileState {
	b, err := os.ReadFile(path)
	return fileState{there: err == nil, data: b}
}

// losePower leaves of every change that was not synced what a disk may leave: each
// file is as it was, as it is, or, if its own content was not synced, empty.
func (d *disk) losePower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	paths := make([]string, 0, len(d.safe))
	for path := range d.safe {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		was := d.safe[path]
		switch n := d.rnd.IntN(3); {
		case n == 0 && was.there:
			_ = os.MkdirAll(filepath.Dir(path), 0o700)
			_ = os.WriteFile(path, was.data, 0o600)
		case n == 0:
			_ = os.Remove(path)
		case n == 1 && !d.synced[path] && read(path).there:
			_ = os.Truncate(path, 0)
		}
	}
	clear(d.safe)
}

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
