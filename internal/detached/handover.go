package detached

import "sync"

// Handover releases a resource after its last use. If no Use runs when the owner calls
// Release, Release releases the resource at once. Otherwise the running Use releases it
// at its end. The zero value is ready for use.
type Handover struct {
	mu      sync.Mutex
	inUse   bool
	release func()
}

// Use calls f and returns true, unless Release was called before. Calls must not
// overlap.
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

// Release calls release, now or at the end of a running Use. If that Use never ends, release is not
// called. Further calls of Release do nothing.
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
