package durable

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Op is the kind of a change that an [OS] makes on the disk.
type Op int

// The operations on which the content of the disk after a crash depends.
const (
	OpWrite Op = iota
	OpRename
	OpRemove
	OpSyncDir
)

// Change is an operation that is about to be made.
type Change struct {
	Op   Op
	Path string
	To   string // of OpRename
	Data []byte // of OpWrite; read-only
	Sync bool   // of OpWrite
}

// guards are the active guards of [Guard]. Without guards, as outside of tests,
// each step costs one atomic load.
var (
	guardsMu sync.Mutex
	guards   atomic.Pointer[[]guard]
)

type guard struct {
	prefix string
	ask    *func(Change) error
}

// Guard makes every [OS] of this process call ask before each step in or below a directory. If
// ask returns an error, the step is not made, and its method returns this error. ask may block,
// as a disk may, and is called from any goroutine. Guard is for simulations of a complete agent,
// whose components open their directories themselves, so that a test cannot pass a Disk to them.
func Guard(dir string, ask func(Change) error) (release func()) {
	g := guard{prefix: strings.TrimSuffix(dir, "/") + "/", ask: &ask}
	change(func(all []guard) []guard { return append(all, g) })
	return sync.OnceFunc(func() {
		change(func(all []guard) []guard {
			var rest []guard
			for _, o := range all {
				if o.ask != g.ask {
					rest = append(rest, o)
				}
			}
			return rest
		})
	})
}

func change(f func([]guard) []guard) {
	guardsMu.Lock()
	defer guardsMu.Unlock()
	var all []guard
	if p := guards.Load(); p != nil {
		all = append(all, *p...)
	}
	if all = f(all); len(all) == 0 {
		guards.Store(nil)
		return
	}
	guards.Store(&all)
}

func ask(c Change) error {
	all := guards.Load()
	if all == nil {
		return nil
	}
	for _, g := range *all {
		if strings.HasPrefix(c.Path+"/", g.prefix) {
			return (*g.ask)(c)
		}
	}
	return nil
}
