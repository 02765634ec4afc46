package cni

import (
	"bytes"
	"sync"
)

// limited keeps a plugin's output, up to maxStdout bytes.
type limited struct {
	full chan struct{} // closed when it was more

	mu sync.Mutex
	b  bytes.Buffer
	is bool
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.is {
		return len(p), nil
	}
	if l.b.Len()+len(p) > maxStdout {
		l.is = true
		l.b = bytes.Buffer{}
		close(l.full)
		return len(p), nil
	}
	return l.b.Write(p)
}

func (l *limited) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.is
}

func (l *limited) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// tail keeps the last maxStderr bytes.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[max(0, len(p)-maxStderr):]...)
	t.b = append(t.b[:0], t.b[max(0, len(t.b)-maxStderr):]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
