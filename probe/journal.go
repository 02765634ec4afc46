package probe

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of the journal.
const (
	keyPrefix    = "probe-"
	journalWait  = 100 * time.Millisecond // how long a result waits for its write at most
	journalBurst = 10                     // writes of one pod without a pause
	journalEvery = 10 * time.Second       // time after which one more write is allowed
)

// journal writes the results of pods to the store. The writes of one pod follow one another and are
// limited by a budget. A newer value replaces a value that is not written yet.
type journal struct {
	store Store
	log   *zap.Logger

	// mu guards the fields below and all entries. It is not held over a call of
	// the store.
	mu      sync.Mutex
	entries map[types.UID]*entry
	failing bool // the last write failed; a change is logged
	closing bool
	wg      sync.WaitGroup
	swept   bool
}

// entry is the state of one pod.
type entry struct {
	want   []byte        // the value to write; nil deletes it
	stored []byte        // the last written value
	known  bool          // stored is the value in the store
	busy   bool          // a write is running
	timer  *time.Timer   // fires when the budget allows the next write
	wrote  chan struct{} // closed after the running or next write
	// tokens is the number of writes that the budget allowed at the time filled; at most
	// journalBurst. The budget protects the disk from a container whose results change every
	// second.
	tokens float64
	filled time.Time
}

// newJournal returns a journal. If store is nil, the journal stores nothing and never waits.
func newJournal(store Store, log *zap.Logger) *journal {
	return &journal{store: store, log: log, entries: map[types.UID]*entry{}}
}

// read returns the results of a pod that an earlier process stored. An unreadable
// record counts as missing.
func (j *journal) read(uid types.UID) record {
	if j.store == nil {
		return nil
	}
	j.mu.Lock()
	e := j.entries[uid]
	var mine []byte
	if e != nil {
		// A value that waits to be written is newer than the one on the disk.
		mine = e.want
	}
	j.mu.Unlock()
	if e != nil && mine == nil {
		return nil // about to be deleted
	}
	// The store may block, so that it is called without mu.
	b, err := mine, error(nil)
	if e == nil {
		b, err = j.store.Read(keyPrefix + string(uid))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var r record
	if err == nil {
		r, err = decode(b)
	}
	if err != nil {
		j.log.Warn("failed to read probe results of pod; ignoring them", zap.String("uid", string(uid)), zap.Error(err))
		return nil
	}
	return r
}

// put requests a write of a pod's results, and returns a channel that is closed
// after it.
func (j *journal) put(uid types.UID, r record) <-chan struct{} {
	if j.store == nil {
		return nil
	}
	// A pod without running containers needs no file.
	if len(r) == 0 {
		return j.set(uid, nil)
	}
	return j.set(uid, encode(r))
}

// wait waits for a write, at most journalWait: a slow disk must not delay the status of a pod.
func (j *journal) wait(done <-chan struct{}) {
	if done == nil {
		return
	}
	t := time.NewTimer(journalWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// forget deletes the results of a pod in the background.
func (j *journal) forget(uid types.UID) {
	if j.store != nil {
		j.set(uid, nil)
	}
}

// set sets the wanted value of a pod, and returns a channel that is closed when it
// is written, or nil if the caller need not wait.
func (j *journal) set(uid types.UID, value []byte) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entries[uid]
	if e == nil {
		e = &entry{tokens: journalBurst, filled: time.Now()}
		j.entries[uid] = e
	}
	// Only the last value is written.
	e.want = value
	// The store has it already.
	if e.known && !e.busy && same(e.stored, value) {
		return nil
	}
	if e.wrote == nil {
		e.wrote = make(chan struct{})
	}
	wrote := e.wrote
	if e.busy {
		return wrote // the running writer checks again
	}
	// Deletions do not count. A write that the budget delays is not waited for.
	if !j.closing && value != nil && !e.allowed() {
		j.delay(uid, e, e.wait())
		return nil
	}
	j.start(uid, e)
	return wrote
}

// same reports whether two values are equal. A nil value, which means that there is none, differs
// from an empty value.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }

// allowed reports whether the budget allows a write now. If so, it takes the write's token.
func (e *entry) allowed() bool {
	now := time.Now()
	// The budget grows with time, one write each journalEvery.
	e.tokens = min(journalBurst, e.tokens+float64(now.Sub(e.filled))/float64(journalEvery))
	e.filled = now
	if e.tokens < 1 {
		return false
	}
	e.tokens--
	return true
}

// wait returns the time until the budget allows a write, plus a millisecond for rounding: a
// timer that fires early would find no token.
func (e *entry) wait() time.Duration {
	return time.Duration((1-e.tokens)*float64(journalEvery)) + time.Millisecond
}

// delay schedules the write of an entry. The caller holds j.mu.
func (j *journal) delay(uid types.UID, e *entry, wait time.Duration) {
	if e.timer != nil {
		return
	}
	e.timer = time.AfterFunc(wait, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		// Stop has no effect on a timer that has fired and waits for the lock.
		if e.timer == nil || j.closing {
			return // it is being written by now
		}
		e.timer = nil
		if e.allowed() {
			j.start(uid, e)
		} else {
			j.delay(uid, e, e.wait())
		}
	})
}

// start begins a write, if there is anything to write. The caller holds j.mu.
func (j *journal) start(uid types.UID, e *entry) {
	if e.busy {
		return
	}
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	e.busy = true
	j.wg.Add(1)
	go j.write(uid, e)
}

// write writes the wanted value of a pod to the store.
func (j *journal) write(uid types.UID, e *entry) {
	defer j.wg.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		// Repeated until the store has the wanted value, which may change during
		// each write.
		value, wrote := e.want, e.wrote
		e.wrote = nil
		j.mu.Unlock()
		// Until the write has ended, busy prevents other writes of this pod.
		err := j.store1(uid, value)
		j.mu.Lock()
		e.stored, e.known = value, err == nil
		j.report(err)
		if wrote != nil {
			// Also after a failure: the callers continue, and the result is
			// reported.
			close(wrote)
		}
		// Done, or given up at the end of Run: another try could go on for ever.
		if err == nil && same(e.want, value) || err != nil && j.closing {
			if e.wrote != nil { // the same value was requested meanwhile
				close(e.wrote)
				e.wrote = nil
			}
			break
		}
		// A failed write is tried again after journalEvery: a full disk is not
		// written to all the time.
		if !j.closing && (err != nil || e.want != nil && !e.allowed()) {
			if e.wrote != nil { // the budget is not waited for
				close(e.wrote)
				e.wrote = nil
			}
			e.busy = false
			if err != nil {
				j.delay(uid, e, journalEvery)
			} else {
				j.delay(uid, e, e.wait())
			}
			return
		}
	}
	e.busy = false
	// Deleted and confirmed by the store: otherwise the entry would remain forever.
	if e.want == nil && e.known {
		delete(j.entries, uid)
	}
}

// store1 makes one call of the store. Deleting a missing value is a success.
func (j *journal) store1(uid types.UID, value []byte) error {
	if value != nil {
		return j.store.Write(keyPrefix+string(uid), value)
	}
	err := j.store.Delete(keyPrefix + string(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// report logs when the journal begins to fail and when it works again. The caller holds j.mu.
func (j *journal) report(err error) {
	switch {
	case err != nil && !j.failing:
		j.log.Warn("failed to write probe results; a restart now would lose them", zap.Error(err))
	case err == nil && j.failing:
		j.log.Info("probe results can be written again")
	}
	j.failing = err != nil
}

// sweep deletes the results that earlier processes stored for pods for which keep returns false. It
// does so only in its first call: pods of this process are removed one by one.
func (j *journal) sweep(keep func(types.UID) bool) {
	j.mu.Lock()
	first := !j.swept
	j.swept = true
	j.mu.Unlock()
	if j.store == nil || !first {
		return
	}
	keys, err := j.store.Keys()
	if err != nil {
		j.mu.Lock()
		// The next call of Retain tries again.
		j.swept = false
		j.report(err)
		j.mu.Unlock()
		return
	}
	for _, k := range keys {
		if uid, ok := strings.CutPrefix(k, keyPrefix); ok && !keep(types.UID(uid)) {
			j.forget(types.UID(uid))
		}
	}
}

// close writes the values that wait for their budget, and waits for all writes.
func (j *journal) close() {
	j.mu.Lock()
	j.closing = true
	for uid, e := range j.entries {
		// The budget does not hold back the last writes: the next process reads
		// them.
		if !e.busy && (!e.known || !same(e.stored, e.want)) {
			j.start(uid, e)
		}
	}
	j.mu.Unlock()
	j.wg.Wait()
}
