package httpbound

import "sync"

// Rank determines how much of a Pool a client may have.
type Rank uint8

const (
	// User is an ordinary client. One user may have at most the Pool's share, and all
	// users together may have three quarters of the Pool.
	User Rank = iota
	// Admin is a client with all permissions. Admins and users together have at most seven
	// eighths of the Pool.
	Admin
	// Machine is the root user of this machine. It may use the whole Pool.
	Machine
)

// Client identifies a client of a Pool.
type Client struct {
	Rank Rank
	Name string
}

// Pool is a number of units that clients share. Its methods may be called from any
// goroutine, and do not block.
type Pool struct {
	size, share int64

	mu   sync.Mutex
	used int64
	by   map[Client]int64 // units by client; no entries with 0
}

// NewPool returns a Pool of size units. share is the maximum for one User.
func NewPool(size, share int) *Pool {
	return &Pool{size: int64(size), share: max(int64(share), 1), by: map[Client]int64{}}
}

// Take gives n units to a client and returns true, if the limits of the Pool and of the client's
// Rank allow it. Otherwise it gives none and returns false. After true, the caller has to return
// the units with Give.
func (p *Pool) Take(c Client, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.size
	switch c.Rank {
	case User:
		limit -= p.size / 4
		if p.by[c]+n > p.share {
			return false
		}
	case Admin:
		limit -= p.size / 8
	case Machine:
	}
	if p.used+n > limit {
		return false
	}
	p.used += n
	p.by[c] += n
	return true
}

// Give returns n units of a client.
func (p *Pool) Give(c Client, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.by[c] -= n; p.by[c] == 0 {
		delete(p.by, c)
	}
}

// Used returns the number of units in use.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}
