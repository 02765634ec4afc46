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

// The loop. Looks are made one after the other in the goroutine of Run, which is cheap
// enough at a stat(2) each; a rotation has a goroutine of its own, and so has each call into
// a file system.

// idle reports writes to files that nobody looks at.
type idle interface {
	// arm has the next write to a file told of once, by its key. It is false
	// if that cannot be had.
	arm(key, path string) bool
	// written reports keys of files that were written to, or that went away.
	written() <-chan string
	close()
}

// Run watches the logs until ctx ends, and then returns nil, when rotations and compressions
// under way have ended too, or have had some seconds to do so. It is not called twice.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Opened here and not in New: a Manager at rest has no descriptor and no goroutine.
	still := m.idle()
	defer still.close()
	// Without Config.Running it stays nil, and never delivers.
	var net <-chan time.Time
	if m.cfg.Running != nil {
		t := time.NewTicker(m.cfg.Interval)
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
		// After every event: each may have made another log the next one.
		timer.Reset(lookAtDue())
	}
}

// pop takes the log that is due, or says when the next one will be. A log that was taken is
// the caller's, until again puts it back.
func (m *Manager) pop(now time.Time) (*watched, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		return nil, m.cfg.Interval
	}
	if wait := m.queue[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&m.queue).(*watched), 0
}

// look looks at a log, and has it rotated or looked at again. It blocks for three times
// lookTimeout at most, if the file system does not answer. Only Run's goroutine calls it.
func (m *Manager) look(ctx context.Context, w *watched, still idle, wg *sync.WaitGroup) {
	m.met.looks.Inc()
	size, err := m.size(ctx, w.Path)
	now := time.Now()
	armed := false
	if m.dozes(w, size, err, now) {
		// What was written before the kernel took note is seen in its size.
		before := size
		if armed, err = m.arm(ctx, still, w.Log); armed && err == nil {
			size, err = m.size(ctx, w.Path)
			armed = err == nil && size == before
			now = time.Now()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// Forgotten while the disk was looked at: it must not come back into the queue.
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
	// The error left here is that of a log which is not there: rotate has it reopened.
	if err != nil || size >= limit {
		wg.Go(func() { m.turn(ctx, w, limit) })
		return
	}
	// From here on all is well with the log.
	w.failing, w.told = 0, ""
	wait := w.pace.next(limit, m.cfg.Burst, m.cfg.Longest)
	switch {
	case w.armed: // it was told of a write, or is looked at as a net
		w.armed = false
	case armed:
		w.armed = true
		wait = m.cfg.Interval
	case w.pace.idle(now):
		wait = m.cfg.Longest
	}
	m.again(w, now.Add(wait))
}

// dozes reports whether the kernel is to tell of a log's next write. It tries the look on a
// copy of the pace: the size may have to be read again before it counts. A log that was
// armed is first looked at without, since its watch may have ended. One that is empty need
// not prove that it is at rest: many containers never log a line.
func (m *Manager) dozes(w *watched, size int64, err error, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || w.gone || w.armed || size >= m.limit(w.Pod) {
		return false
	}
	next := w.pace
	next.look(size, now)
	return size == 0 || next.idle(now)
}

// size is the size of a log in bytes. The error is fs.ErrNotExist if there is no log.
func (m *Manager) size(ctx context.Context, path string) (int64, error) {
	return onDisk(ctx, m, path, lookTimeout, func() (int64, error) {
		fi, err := statLog(path)
		if err != nil {
			return 0, err
		}
		return fi.Size(), nil
	})
}

// arm is idle.arm, with a deadline.
func (m *Manager) arm(ctx context.Context, still idle, l Log) (bool, error) {
	return onDisk(ctx, m, l.Path, lookTimeout, func() (bool, error) { return still.arm(l.ID, l.Path), nil })
}

// again puts a log back into the queue, unless it was forgotten. m.mu is held.
func (m *Manager) again(w *watched, due time.Time) {
	if w.gone {
		return
	}
	w.due = due
	heap.Push(&m.queue, w)
}

// fail has a log looked at again later, the later the more often it failed. It logs the
// failure if it is another one than before. m.mu is held.
func (m *Manager) fail(w *watched, err error, now time.Time) {
	if w.gone {
		return
	}
	w.failing++
	wait := retry.Backoff{First: time.Second, Max: m.cfg.Interval}.After(w.failing)
	if text := err.Error(); text != w.told {
		w.told = text
		m.cfg.Log.Warn("a log cannot be rotated", zap.String("container", w.ID), zap.String("path", w.Path), zap.Error(err))
	}
	m.again(w, now.Add(wait))
}

// turn rotates a log in its own time, and then compresses what is due. It has a goroutine of
// its own, and w to itself until it is put back.
func (m *Manager) turn(ctx context.Context, w *watched, limit int64) {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	l := w.Log
	// A rotation asks the runtime twice at most: for a log that is not there, and after the
	// rename.
	pack, err := onDisk(ctx, m, l.Path, 2*m.cfg.Timeout+turnTimeout, func() ([]string, error) { return m.rotate(ctx, l, limit) })
	<-m.slots
	now := time.Now()
	m.mu.Lock()
	if err != nil {
		m.met.rotations.WithLabelValues("failed").Inc()
		m.fail(w, err, now)
	} else {
		// The watch was that of the file which has another name now.
		w.armed = false
		// The new file is empty, or nearly so.
		w.pace.look(0, now)
		w.failing, w.told = 0, ""
		m.again(w, now.Add(w.pace.next(limit, m.cfg.Burst, m.cfg.Longest)))
	}
	m.mu.Unlock()
	// Run sleeps until what was due when it last looked.
	m.poke()
	// The log is in the queue again, and its next rotation may overtake this.
	m.pack(ctx, pack)
}

// written has a log looked at that was idle. Events of logs that were forgotten, or are
// being looked at, come to nothing: a look is due to them, or none.
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

// reconcile watches what runs, and forgets what does not: a Watch or a Forget that was
// missed has no lasting effect. It blocks Run for Config.Timeout at most. A list that cannot
// be had changes nothing.
func (m *Manager) reconcile(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	began := time.Now()
	logs, err := m.cfg.Running(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.cfg.Log.Warn("running containers cannot be listed", zap.Error(err))
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
		if !there[id] && w.since.Before(began) { // it may have come since
			m.forget(w)
		}
	}
}
