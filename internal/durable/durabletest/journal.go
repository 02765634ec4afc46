// Package durabletest simulates power failures of disks: for the files that package
// durable writes below a directory, it restores a state that a disk could have
// after a power failure.
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

// Journal records the content of files that survives a power failure, and later
// changes. Note may be called from any goroutine.
type Journal struct {
	mu     sync.Mutex
	safe   map[string]content // of files with changes whose directory was not synced since
	synced map[string]bool    // files whose content was synced
	rnd    *rand.Rand
}

// content is a file, or none.
type content struct {
	there bool
	data  []byte
}

// New returns the journal of a disk on which all files are synced. The seed
// determines the results of power failures.
func New(seed uint64) *Journal {
	return &Journal{safe: map[string]content{}, synced: map[string]bool{}, rnd: rand.New(rand.NewPCG(seed, 2))}
}

// Note receives each step before it is made, from [durable.Guard].
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

// touch records the synced content of a file before its first change.
func (j *Journal) touch(path string) {
	if _, known := j.safe[path]; !known {
		j.safe[path] = read(path)
	}
}

func read(path string) content {
	b, err := os.ReadFile(path)
	return content{there: err == nil, data: b}
}

// LosePower simulates a power failure. A file with an unsynced change gets its old content or its
// new content. If the content itself was not synced, the file may also be empty. No step may be
// running. Files that other code than package durable has written do not change.
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
