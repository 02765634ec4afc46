package executor

import "sync"

// limited keeps the first limit bytes that are written to it. It calls full once, at the first
// byte beyond the limit.
type limited struct {
	limit int
	full  func()

	mu   sync.Mutex
	kept []byte
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := l.limit - len(l.kept)
	l.kept = append(l.kept, p[:min(len(p), room)]...)
	if len(p) > room && !l.over {
		l.over = true
		l.full()
	}
	return len(p), nil
}

func (l *limited) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

func (l *limited) overflowed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// tail keeps at least the last limit bytes that are written to it, and at most twice as many.
type tail struct {
	limit int

	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	p = p[max(0, n-t.limit):]
	if len(t.kept)+len(p) > 2*t.limit {
		t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-t.limit):]...)
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[max(0, len(t.kept)-t.limit):]
}
