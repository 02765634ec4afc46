package notify

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// priWaiter waits for POLLPRI on a kernel file.
type priWaiter struct {
	file *os.File
	on   func() (string, error)
}

func (p *priWaiter) fd() int               { return int(p.file.Fd()) }
func (p *priWaiter) mask() int16           { return unix.POLLPRI }
func (p *priWaiter) read() (string, error) { return p.on() }
func (p *priWaiter) close()                { _ = p.file.Close() }

func (p psi) open() (waiter, error) {
	f, err := os.OpenFile(p.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString(p.line()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("set a stall of %v in %v%s: %w", p.stall, p.window, p.hint(err), err)
	}
	return &priWaiter{f, func() (string, error) { return p.String(), nil }}, nil
}

// hint returns a suffix for the error err that says why the kernel refuses the window. It returns
// "" if the reason is not known.
func (p psi) hint(err error) string {
	if errors.Is(err, unix.EINVAL) && p.window%unprivilegedWindow != 0 {
		return fmt.Sprintf(" (without CAP_SYS_RESOURCE the kernel takes windows that are multiples of %v only)", unprivilegedWindow)
	}
	return ""
}

func (e events) open() (waiter, error) {
	f, err := os.Open(e.path)
	if err != nil {
		return nil, err
	}
	read := func() (map[string]uint64, error) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		data, err := io.ReadAll(f)
		return counts(string(data)), err
	}
	last, err := read()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &priWaiter{f, func() (string, error) {
		now, err := read()
		if err != nil {
			return "", err
		}
		what := grown(last, now)
		if last = now; what != "" {
			what = e.String() + " " + what
		}
		return what, nil
	}}, nil
}

// levelWaiter waits for levels of cgroup v1 on an eventfd. A registration in the kernel ends
// when its eventfd is closed, so new levels need a new eventfd. The polling goroutine closes the
// old one.
type levelWaiter struct {
	name  string
	dir   string
	usage *os.File

	mu    sync.Mutex
	event *counter
	old   []*counter
}

func (u usage) open() (waiter, error) {
	f, err := os.Open(filepath.Join(u.dir, "memory.usage_in_bytes"))
	if err != nil {
		return nil, err
	}
	c, err := newCounter()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &levelWaiter{name: u.String(), dir: u.dir, usage: f, event: c}, nil
}

// aim registers new levels in place of the old ones. The caller then wakes the polling
// goroutine.
func (l *levelWaiter) aim(levels []int64) error {
	next, err := newCounter()
	if err != nil {
		return err
	}
	for _, level := range levels {
		line := fmt.Sprintf("%d %d %d", next.fd(), l.usage.Fd(), max(level, 0))
		if err := os.WriteFile(filepath.Join(l.dir, "cgroup.event_control"), []byte(line), 0); err != nil {
			next.close()
			return fmt.Errorf("register level of %d bytes: %w", level, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.old = append(l.old, l.event)
	l.event = next
	return nil
}

// fd returns the current eventfd and closes the old ones.
func (l *levelWaiter) fd() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.old {
		c.close()
	}
	l.old = nil
	return l.event.fd()
}

func (l *levelWaiter) mask() int16 { return unix.POLLIN }

func (l *levelWaiter) read() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.event.take()
	if n == 0 || err != nil {
		return "", err
	}
	return l.name, nil
}

func (l *levelWaiter) close() {
	_ = l.fd() // with those before
	l.event.close()
	_ = l.usage.Close()
}
