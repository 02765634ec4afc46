package logrotate

import (
	"container/heap"
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/retry"
)

// The loop. Run checks one log after the other, with a stat(2) each. Each rotation and each file
// system call has its own goroutine.

// idle reports writes to idle logs.
type idle interface {
	// arm requests a notification of the next write to a file, with its key. It returns false if
	// that is not possible.
	arm(key, path string) bool
	// written returns the channel of keys of files that were written, renamed or removed.
	written() <-chan string
	close()
}

// Run rotates logs until ctx ends. Then it waits for running rotations and compressions, for some
// seconds at most, and returns nil. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Opened here, since New must have no side effects.
	still := m.idle()
	defer still.close()
	// Without Config.Running it stays nil, and never delivers.
	var net <-chan time.Time
	if m.cfg.Running != nil {
		t := time.NewTicker(listInterval)
		defer t.Stop()
		net = t.C
		m.reconcile(ctx)
	}
	lookAtDue := func() time.Duration {
		for {
			w, wait := m.pop(time.Now())
			if w == nil {
				return wait
			}
			m.look(ctx, w, still, &wg)
		}
	}
	timer := time.NewTimer(lookAtDue())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
		case <-timer.C:
		case id := <-still.written():
			m.written(id)
		case <-net:
			m.reconcile(ctx)
		}
		// After every event, since another log may be the next one.
		timer.Reset(lookAtDue())
	}
}

// pop removes and returns a log that is due, or returns the time until the next one. The caller
// owns the log until again puts it back.
func (m *Manager) pop(now time.Time) (*watched, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		return nil, listInterval
	}
	if wait := m.queue[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&m.queue).(*watched), 0
}

// look checks a log's size and starts its rotation or schedules the next check. It blocks for at
// most three times lookTimeout. Only Run's goroutine calls it.
func (m *Manager) look(ctx context.Context, w *watched, still idle, wg *sync.WaitGroup) {
	size, err := m.size(ctx, w.Path)
	now := time.Now()
	armed := false
	if m.awaitsWrite(w, size, err, now) {
		// The size shows writes from before the watch.
		before := size
		if armed, err = m.arm(ctx, still, w.Log); armed && err == nil {
			size, err = m.size(ctx, w.Path)
			armed = err == nil && size == before
			now = time.Now()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// Forgotten meanwhile: do not put it back.
	if w.gone {
		return
	}
	limit := m.limit(w.Pod)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.fail(w, err, now)
		return
	}
	if err == nil {
		w.pace.look(size, now)
	}
	// An error means that the log is missing: rotate then makes the runtime reopen it.
	if err != nil || size >= limit {
		wg.Go(func() { m.turn(ctx, w, limit) })
		return
	}
	// No error.
	w.failing, w.told = 0, ""
	wait := w.pace.next(limit, m.burst, m.cfg.Longest)
	switch {
	case w.armed: // after a notification, or as a precaution
		w.armed = false
	case armed:
		w.armed = true
		wait = listInterval
	case w.pace.idle(now):
		wait = m.cfg.Longest
	}
	m.again(w, now.Add(wait))
}

// awaitsWrite reports whether to wait for a notification of the log's next write instead of the next
// check. It uses a copy of the pace, since the size may be read again. A log that was armed is
// checked once by its size, since its watch may have ended. An empty log counts as idle at once:
// many containers never log a line.
func (m *Manager) awaitsWrite(w *watched, size int64, err error, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || w.gone || w.armed || size >= m.limit(w.Pod) {
		return false
	}
	next := w.pace
	next.look(size, now)
	return size == 0 || next.idle(now)
}

// size returns the size of a log in bytes, or fs.ErrNotExist if there is no log.
func (m *Manager) size(ctx context.Context, path string) (int64, error) {
	return onDisk(ctx, m, path, lookTimeout, func() (int64, error) {
		fi, err := statLog(path)
		if err != nil {
			return 0, err
		}
		return fi.Size(), nil
	})
}

// arm calls idle.arm with a timeout.
func (m *Manager) arm(ctx context.Context, still idle, l Log) (bool, error) {
	return onDisk(ctx, m, l.Path, lookTimeout, func() (bool, error) { return still.arm(l.ID, l.Path), nil })
}

// again puts a log back into the queue, unless it is forgotten. m.mu is held.
func (m *Manager) again(w *watched, due time.Time) {
	if w.gone {
		return
	}
	w.due = due
	heap.Push(&m.queue, w)
}

// fail schedules the next check after a failure, with back-off, and logs the error if it
// changed. m.mu is held.
func (m *Manager) fail(w *watched, err error, now time.Time) {
	if w.gone {
		return
	}
	w.failing++
	wait := retry.Backoff{First: time.Second, Max: listInterval}.After(w.failing)
	if text := err.Error(); text != w.told {
		w.told = text
		m.cfg.Log.Warn("failed to rotate log", zap.String("container", w.ID), zap.String("path", w.Path), zap.Error(err))
	}
	m.again(w, now.Add(wait))
}

// turn rotates a log and then compresses its older files. It runs in its own goroutine, and owns
// w until it puts w back into the queue.
func (m *Manager) turn(ctx context.Context, w *watched, limit int64) {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	l := w.Log
	// A rotation calls the runtime at most twice: for a missing log, and after the rename.
	pack, err := onDisk(ctx, m, l.Path, 2*callTimeout+turnTimeout, func() ([]string, error) { return m.rotate(ctx, l, limit) })
	<-m.slots
	now := time.Now()
	m.mu.Lock()
	if err != nil {
		m.fail(w, err, now)
	} else {
		// The watch belongs to the renamed file.
		w.armed = false
		// The new file is empty, or nearly so.
		w.pace.look(0, now)
		w.failing, w.told = 0, ""
		m.again(w, now.Add(w.pace.next(limit, m.burst, m.cfg.Longest)))
	}
	m.mu.Unlock()
	// Run must see the new due time.
	m.changed.Set()
	// The log is in the queue again, and may be rotated meanwhile.
	m.pack(ctx, pack)
}

// written schedules a check of an idle log after a notification. Notifications of forgotten
// logs, and of logs that are being checked, are ignored.
func (m *Manager) written(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.logs[id]
	if w == nil || !w.armed || w.index < 0 {
		return
	}
	w.pace.grown = time.Now()
	w.due = w.pace.grown
	heap.Fix(&m.queue, w.index)
}

// reconcile updates the watched logs from Config.Running, in case a Watch or Forget was missed.
// It blocks Run for at most callTimeout. After an error nothing changes.
func (m *Manager) reconcile(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	logs, err := m.cfg.Running(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.cfg.Log.Warn("failed to list running containers", zap.Error(err))
		}
		return
	}
	there := make(map[string]bool, len(logs))
	for _, l := range logs {
		there[l.ID] = true
		m.Watch(l)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, w := range m.logs {
		if !there[id] && w.since.Before(began) { // it may have been added since
			m.forget(w)
		}
	}
}
