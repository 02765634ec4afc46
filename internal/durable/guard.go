package durable

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Op is one kind of step that an [OS] takes.
type Op int

// The steps that change what a crash leaves.
const (
	OpWrite Op = iota
	OpRename
	OpRemove
	OpSyncDir
)

// Change is one step, before it is taken.
type Change struct {
	Op   Op
	Path string
	To   string // of OpRename
	Data []byte // of OpWrite; not to be changed
	Sync bool   // of OpWrite
}

// guards are those of [Guard]. A process outside of tests has none, and pays one
// load for each step.
var (
	guardsMu sync.Mutex
	guards   atomic.Pointer[[]guard]
)

type guard struct {
	prefix string
	ask    *func(Change) error
}

// Guard has every [OS] of this process ask before each step in or below a directory. An
// error is the step's, which is not taken then; ask may block, as a disk does. It
// is called from any goroutine. The simulation of whole agents is the one user:
// their blocks open directories of their own, so that no Disk can be passed
// to all of them.
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
