// Package durabletest simulates power failures for files that package durable writes: it
// changes the files to a state that a disk could have after a power failure.
package durabletest

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nodewright/nodewright/internal/durable"
)

// Journal records which content of files a power failure could restore. Its methods may be
// called from any goroutine.
type Journal struct {
	mu     sync.Mutex
	safe   map[string]content // by file with unsynced changes: the content before them
	synced map[string]bool    // files whose content was synced
	rnd    *rand.Rand
}

// content is the content of a file. there is false if the file does not exist.
type content struct {
	there bool
	data  []byte
}

// New returns a Journal for a disk on which all files are synced. The seed determines the
// results of power failures.
func New(seed uint64) *Journal {
	return &Journal{safe: map[string]content{}, synced: map[string]bool{}, rnd: rand.New(rand.NewPCG(seed, 2))}
}

// Note records a change before it is made. Call it from the function of [durable.Guard].
func (j *Journal) Note(c durable.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch c.Op {
	case durable.OpWrite:
		j.touch(c.Path)
		j.synced[c.Path] = c.Sync
	case durable.OpRename:
		j.touch(c.Path)
		j.touch(c.To)
		j.synced[c.To] = j.synced[c.Path]
	case durable.OpRemove:
		j.touch(c.Path)
	case durable.OpSyncDir:
		for path := range j.safe {
			if filepath.Dir(path) == filepath.Clean(c.Path) && (j.synced[path] || !read(path).there) {
				delete(j.safe, path)
			}
		}
	}
}

// touch records the content of a file before its first unsynced change.
func (j *Journal) touch(path string) {
	if _, known := j.safe[path]; !known {
		j.safe[path] = read(path)
	}
}

func read(path string) content {
	b, err := os.ReadFile(path)
	return content{there: err == nil, data: b}
}

// LosePower simulates a power failure. It gives each file with an unsynced change the old or the
// new content, at random. If the new content itself was not synced, the file may also become empty.
// LosePower changes no file that Note has not seen. No change may be running.
func (j *Journal) LosePower() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(j.safe)) {
		was := j.safe[path]
		switch n := j.rnd.IntN(3); {
		case n == 0 && was.there:
			_ = os.MkdirAll(filepath.Dir(path), 0o700)
			_ = os.WriteFile(path, was.data, 0o600)
		case n == 0:
			_ = os.Remove(path)
		case n == 1 && !j.synced[path] && read(path).there:
			_ = os.Truncate(path, 0)
		}
	}
	clear(j.safe)
}
