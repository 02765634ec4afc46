package stats

import (
	"context"
	"sync"
)

// Disk is a file system as a whole; sizes are in bytes.
type Disk struct {
	Device             uint64 // its number
	Capacity           uint64
	Available, Free    uint64 // to anyone, and to root
	Inodes, InodesFree uint64
}

// disks asks file systems. One that does not answer has one question in
// flight, however often it is asked: statfs of a server that is gone cannot be
// interrupted.
type disks struct {
	statfs func(path string) (Disk, error)

	mu      sync.Mutex
	flights map[string]*diskFlight
}

type diskFlight struct {
	done chan struct{}
	disk Disk
	err  error
}

func (d *disks) ask(ctx context.Context, path string) (Disk, error) {
	d.mu.Lock()
	f := d.flights[path]
	if f == nil {
		f = &diskFlight{done: make(chan struct{})}
		if d.flights == nil {
			d.flights = map[string]*diskFlight{}
		}
		d.flights[path] = f
		go func() {
			f.disk, f.err = d.statfs(path)
			d.mu.Lock()
			delete(d.flights, path)
			d.mu.Unlock()
			close(f.done)
		}()
	}
	d.mu.Unlock()
	select {
	case <-f.done:
		return f.disk, f.err
	case <-ctx.Done():
		return Disk{}, ctx.Err()
	}
}
