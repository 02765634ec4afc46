package durable

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Op is the kind of a change that an [OS] makes on the disk.
type Op int

// The operations that change what is on the disk after a crash.
const (
	OpWrite Op = iota
	OpRename
	OpRemove
	OpSyncDir
)

// Change is an operation that an [OS] is about to make.
type Change struct {
	Op   Op
	Path string
	To   string // OpRename: the new path
	Data []byte // OpWrite: the content; must not be changed
	Sync bool   // OpWrite: the file is synced
}

// guards are the active guards of [Guard]. Without guards, as outside of tests, the check
// before each operation is one atomic load.
var (
	guardsMu sync.Mutex
	guards   atomic.Pointer[[]guard]
)

type guard struct {
	prefix string
	ask    *func(Change) error
}

// Guard makes every [OS] of this process call ask before each Change in or below a directory, until
// release is called. If ask returns an error, the method of OS makes no change and returns this
// error. ask is called from any goroutine and may block, as a disk may. Guard is for simulations of
// a complete agent: its components open their directories themselves, so a test cannot pass a Disk
// to them.
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
