//go:build linux

package main

import (
	"sync"

	"golang.org/x/sys/unix"
)

// buffer is the memory that a pump uses while it copies.
type buffer struct {
	all []byte
	in  []byte // batchSize
	out []byte // formatSize
}

// buffers keeps one free buffer, of which an idle monitor has a page or two in memory.
type buffers struct {
	mu   sync.Mutex
	free *buffer
}

func (p *buffers) get() *buffer {
	p.mu.Lock()
	b := p.free
	p.free = nil
	p.mu.Unlock()
	if b != nil {
		return b
	}
	all, err := unix.Mmap(-1, 0, batchSize+formatSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fail("mmap: " + err.Error()) // a successor is better than a monitor that cannot read
	}
	return &buffer{all: all, in: all[:batchSize:batchSize], out: all[batchSize:]}
}

// put returns a buffer. used is the size of the largest batch that was read into it.
func (p *buffers) put(b *buffer, used int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.free != nil:
		_ = unix.Munmap(b.all)
		return
	case used > 2<<10:
		_ = unix.Madvise(b.all, unix.MADV_DONTNEED)
	}
	p.free = b
}
