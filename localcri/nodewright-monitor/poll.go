//go:build linux

package main

import (
	"sync"

	"golang.org/x/sys/unix"
)

// poller finds descriptors that are ready. Its methods may be called concurrently.
type poller struct {
	fd      int
	mu      sync.Mutex
	next    int32            // guarded by mu
	watches map[int32]*watch // guarded by mu
}

// watch is a descriptor that a poller watches.
type watch struct {
	token int32
	fd    int
	ready func(events uint32)
	pump  *pump // ready is called in its goroutine, once per arm; nil: in the loop
	gone  bool  // owned by that goroutine
}

// add watches a descriptor. The watches of pumps are not armed yet.
func (p *poller) add(fd int, events uint32, ready func(uint32), owner *pump) (*watch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.next++; p.watches[p.next] != nil; p.next++ { // skip tokens in use; there are few
	}
	w := &watch{token: p.next, fd: fd, ready: ready, pump: owner}
	if owner != nil {
		events = unix.EPOLLONESHOT
	}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: w.token}); err != nil {
		return nil, err
	}
	if owner != nil { // EPOLLHUP and EPOLLERR are always reported: suppress them until arm
		_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: 0})
	}
	p.watches[w.token] = w
	return w, nil
}

// arm makes the poller report events of w. For the watch of a pump it reports them once.
func (p *poller) arm(w *watch, events uint32) {
	if w.pump != nil {
		events |= unix.EPOLLONESHOT
	}
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, w.fd, &unix.EpollEvent{Events: events, Fd: w.token})
}

// remove ends a watch. It must be called before the descriptor is closed.
func (p *poller) remove(w *watch) {
	if w == nil || w.gone {
		return
	}
	w.gone = true
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watches, w.token)
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, w.fd, nil)
}

func (p *poller) dispatch(e unix.EpollEvent) {
	p.mu.Lock()
	w := p.watches[e.Fd]
	p.mu.Unlock()
	switch {
	case w == nil:
	case w.pump != nil:
		w.pump.enqueue(work{w: w, events: e.Events})
	case !w.gone:
		w.ready(e.Events)
	}
}
