package hold

import (
	"context"
	"sync"
)

// Table has the items that are held or being removed. The zero value is an empty table.
type Table[K comparable] struct {
	mu sync.Mutex
	// seq is a logical clock: it counts releases and removals.
	seq    uint64
	held   map[K]int
	holds  map[*Hold[K]]bool
	passes map[*Pass[K]]bool
	taking map[K]chan struct{} // items that are being removed; closed after the removal
	// released and removed have, by item, the seq of the last release and of the last removal.
	// Entries that no open pass or hold needs are dropped.
	released, removed map[K]uint64
	// most is the number of entries in released and removed at which forget searches next for
	// entries that are not needed. A search at each release would cost too much.
	most int
}

// Hold is the hold of one user on one item, with all its names. A user of several items opens a
// Hold for each.
type Hold[K comparable] struct {
	t      *Table[K]
	opened uint64
	keys   map[K]bool
	over   bool
}

// minForget is the smallest value of most.
const minForget = 16

// Open returns a hold without names.
func (t *Table[K]) Open() *Hold[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq++
	h := &Hold[K]{t: t, opened: t.seq, keys: map[K]bool{}}
	if t.holds == nil {
		t.holds = map[*Hold[K]]bool{}
	}
	t.holds[h] = true
	return h
}

// Add waits for a removal of k under way and then holds k. intact is false if k was removed since
// the hold was opened, or since the last Add that returned false: earlier look-ups of the item by
// any of its names are out of date. Add returns an error only if ctx ends. After Release, Add
// does nothing.
func (h *Hold[K]) Add(ctx context.Context, k K) (intact bool, err error) {
	t := h.t
	for {
		t.mu.Lock()
		gone := t.taking[k]
		if gone == nil {
			break
		}
		t.mu.Unlock()
		select {
		case <-gone:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	defer t.mu.Unlock()
	if h.over {
		return true, nil
	}
	if !h.keys[k] {
		h.keys[k] = true
		if t.held == nil {
			t.held = map[K]int{}
		}
		t.held[k]++
	}
	if t.removed[k] > h.opened {
		t.seq++
		h.opened = t.seq // held from now on
		return false, nil
	}
	return true, nil
}

// Release releases all names. Further calls do nothing.
func (h *Hold[K]) Release() {
	t := h.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.over {
		return
	}
	h.over = true
	t.seq++
	for k := range h.keys {
		if t.held[k]--; t.held[k] == 0 {
			delete(t.held, k)
		}
		if len(t.passes) > 0 {
			if t.released == nil {
				t.released = map[K]uint64{}
			}
			t.released[k] = t.seq
		}
	}
	delete(t.holds, h)
	t.forget()
}

// Pass is one pass of a collector. Several may be open.
type Pass[K comparable] struct {
	t     *Table[K]
	began uint64
}

// Begin begins a pass. Call it before the facts of the pass are read.
func (t *Table[K]) Begin() *Pass[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq++
	p := &Pass[K]{t: t, began: t.seq}
	if t.passes == nil {
		t.passes = map[*Pass[K]]bool{}
	}
	t.passes[p] = true
	return p
}

// End drops what the table remembers for this pass only. Call it once the pass removes nothing
// more.
func (p *Pass[K]) End() {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	delete(p.t.passes, p)
	p.t.forget()
}

// Free reports whether Take of these names would succeed now.
func (p *Pass[K]) Free(keys ...K) bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	return p.free(keys)
}

func (p *Pass[K]) free(keys []K) bool {
	for _, k := range keys {
		if p.t.held[k] > 0 || p.t.taking[k] != nil || p.t.released[k] > p.began {
			return false
		}
	}
	return true
}

// Take takes an item, with all its names, for removal. done must be called after the removal or
// its failure. ok is false if the item is held, was held since the pass began, or is being
// removed by another pass.
func (p *Pass[K]) Take(keys ...K) (done func(), ok bool) {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if !p.free(keys) {
		return nil, false
	}
	if t.taking == nil {
		t.taking = map[K]chan struct{}{}
	}
	gone := make(chan struct{})
	for _, k := range keys {
		t.taking[k] = gone
	}
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.seq++
		if t.removed == nil {
			t.removed = map[K]uint64{}
		}
		for _, k := range keys {
			delete(t.taking, k)
			t.removed[k] = t.seq
		}
		t.forget()
		close(gone)
	}), true
}

// forget drops entries that no open pass or hold needs. Without an open pass it drops all of
// released, and without an open hold all of removed. Otherwise it searches the entries only when
// their number has doubled.
func (t *Table[K]) forget() {
	if len(t.passes) == 0 {
		t.released = nil
	}
	if len(t.holds) == 0 {
		t.removed = nil
	}
	if len(t.released)+len(t.removed) < t.most {
		return
	}
	defer func() { t.most = 2*(len(t.released)+len(t.removed)) + minForget }()
	oldest := t.seq
	for p := range t.passes {
		oldest = min(oldest, p.began)
	}
	for k, at := range t.released {
		if at <= oldest {
			delete(t.released, k)
		}
	}
	oldest = t.seq
	for h := range t.holds {
		oldest = min(oldest, h.opened)
	}
	for k, at := range t.removed {
		if at <= oldest {
			delete(t.removed, k)
		}
	}
}
