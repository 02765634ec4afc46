package notify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// counter is an eventfd(2).
type counter struct {
	n int

	mu     sync.Mutex
	closed bool
}

func newCounter() (*counter, error) {
	n, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("notify: eventfd: %w", err)
	}
	return &counter{n: n}, nil
}

func (c *counter) fd() int { return c.n }

// add increments the counter, unless it is closed.
func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if !c.closed {
		_, _ = unix.Write(c.n, one[:]) // it fails only if the counter is full, and so readable
	}
}

// take returns the count and resets it.
func (c *counter) take() (uint64, error) {
	var b [8]byte
	_, err := unix.Read(c.n, b[:])
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	return binary.NativeEndian.Uint64(b[:]), err
}

func (c *counter) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		_ = unix.Close(c.n)
	}
	c.closed = true
}
