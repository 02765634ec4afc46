package detached

import "sync"

// Handover has something that one call at a time uses released by whoever is the
// last to have it: its owner, or a call that has not returned yet. Its zero value is
// ready for use.
type Handover struct {
	mu      sync.Mutex
	inUse   bool
	release func()
}

// Use calls f, unless Release was called before, and reports whether it did. Calls
// must not overlap.
func (h *Handover) Use(f func()) bool {
	h.mu.Lock()
	h.inUse = h.release == nil
	used := h.inUse
	h.mu.Unlock()
	if !used {
		return false
	}
	defer func() {
		h.mu.Lock()
		h.inUse = false
		release := h.release
		h.mu.Unlock()
		if release != nil {
			release()
		}
	}()
	f()
	return true
}

// Release has release called once: now, or when the call that is under way returns,
// if ever. Later calls do nothing.
func (h *Handover) Release(release func()) {
	h.mu.Lock()
	if h.release != nil {
		h.mu.Unlock()
		return
	}
	h.release = release
	now := !h.inUse
	h.mu.Unlock()
	if now {
		release()
	}
}
