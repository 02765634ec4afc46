//go:build linux

package image

import (
	"slices"
	"sync"
	"time"
)

// absentTime is how long a server to which no connection could be made is asked after all others.
const absentTime = time.Minute

// maxAbsent limits the servers that absent remembers. Images' names can have any number of hosts.
const maxAbsent = 1000

// absent remembers the servers to which no connection could be made in the last absentTime. The
// zero value is ready. All methods may be called concurrently.
type absent struct {
	mu    sync.Mutex
	until map[string]time.Time // by host
}

// add remembers a host.
func (a *absent) add(host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) >= maxAbsent || a.until == nil {
		a.until = map[string]time.Time{}
	}
	a.until[host] = time.Now().Add(absentTime)
}

// last returns the endpoints in the order in which they are asked: absent ones last, since each
// of them costs the time limit for a connection.
func (a *absent) last(ends []*endpoint) []*endpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for host, until := range a.until {
		if !now.Before(until) {
			delete(a.until, host)
		}
	}
	if len(a.until) == 0 {
		return ends
	}
	sorted := slices.Clone(ends)
	slices.SortStableFunc(sorted, func(x, y *endpoint) int { return a.rank(x) - a.rank(y) })
	return sorted
}

// rank returns 1 for an absent endpoint, else 0. The caller must hold a.mu.
func (a *absent) rank(e *endpoint) int {
	if _, is := a.until[e.repo.RegistryStr()]; is {
		return 1
	}
	return 0
}
