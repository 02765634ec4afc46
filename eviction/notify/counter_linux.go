package notify

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// counter is an eventfd(2).
type counter struct {
	n    int
	done chan struct{}
}

func newCounter() (*counter, error) {
	n, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("notify: eventfd: %w", err)
	}
	return &counter{n: n, done: make(chan struct{}, 1)}, nil
}

func (c *counter) fd() int { return c.n }

// add makes the counter readable.
func (c *counter) add() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(c.n, one[:]) // it can only fail when it is readable anyway
	select {
	case c.done <- struct{}{}:
	default:
	}
}

// wait returns after add was called.
func (c *counter) wait() { <-c.done }

// take returns what was counted since the last time.
func (c *counter) take() (uint64, error) {
	var b [8]byte
	_, err := unix.Read(c.n, b[:])
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	return binary.NativeEndian.Uint64(b[:]), err
}

// become makes the counter's descriptor mean that of another.
func (c *counter) become(other *counter) error {
	if err := unix.Dup3(other.n, c.n, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("notify: dup3: %w", err)
	}
	return nil
}

func (c *counter) close() { _ = unix.Close(c.n) }
