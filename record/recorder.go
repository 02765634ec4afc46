package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/wake"
)

// Config configures a Recorder. Dir is required; the zero value of every other field means the
// default named beside it.
type Config struct {
	// Dir is the directory of the files. It is made if it does not exist. One recorder at a time may
	// use it.
	Dir string
	// MaxBytes limits the bytes of all files; 16 MiB. If they are exceeded, the oldest file is
	// removed. A file has at most an eighth of MaxBytes.
	MaxBytes int64
	// Node, Version and Boot are put into the entries: the node's name, the version of the program,
	// and the ID of the machine's boot. None.
	Node, Version, Boot string

	Log *zap.Logger // silent
}

const (
	defaultMaxBytes = 16 << 20
	minMaxBytes     = 8 * 2 * maxEntry
	// A file has at most this part of MaxBytes.
	parts = 8

	// maxQueue and maxQueueBytes limit the entries that wait for the disk.
	maxQueue      = 16384
	maxQueueBytes = 8 << 20

	// writePause is how long entries are collected before they are written. Written entries
	// survive the end of the process. syncPause is the longest time between a write and the
	// following sync. Synced entries survive a power failure.
	writePause = time.Second
	syncPause  = 5 * time.Second

	// clockSlack is the smallest difference between the two clocks that counts as a change of the
	// wall clock.
	clockSlack = 2 * time.Second
)

// Recorder records entries in files. It is a Part with a Run for an agent of this module: see
// package agent/part.
type Recorder struct {
	cfg  Config
	wake wake.Signal

	begun time.Time // time of the call of New

	mu sync.Mutex // held for memory only
	// queue has the entries that are not written yet.
	queue []line
	bytes int
	lost  int
	// known has the state of each key, once the files have been read.
	known  map[uint64]state
	loaded bool
}

// state is the last recorded state of a key, and the number of the file that has it; 0 if it is not
// written yet.
type state struct{ sum, file uint32 }

// New checks cfg and returns a Recorder. It opens nothing before [Recorder.Run].
func New(cfg Config) (*Recorder, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if !filepath.IsAbs(cfg.Dir) {
		errs = append(errs, fmt.Errorf("Config.Dir is %q; an absolute path is required", cfg.Dir))
	}
	if cfg.MaxBytes < minMaxBytes {
		errs = append(errs, fmt.Errorf("Config.MaxBytes is %d; at least %d are required", cfg.MaxBytes, minMaxBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return &Recorder{cfg: cfg, wake: wake.New(), begun: time.Now(), known: map[uint64]state{}}, nil
}

// Name is the recorder's name as a part of an agent.
func (*Recorder) Name() string { return "record" }

// Record records an entry, unless it is a state that is recorded already. It sets At and Boot.
// It never waits: if too many entries wait for the disk, the entry is dropped, and a [Gap] says so.
// It may be called from any goroutine, before, during and after Run. The Fact is not changed
// afterwards.
func (r *Recorder) Record(e Entry) {
	fact := encode(e.Fact)
	key, sum := keyOf(&e, fact)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded && !r.news(key, sum, e.Fact.idle()) {
		return
	}
	e.At, e.Boot = milli(time.Now()), r.cfg.Boot
	l := encodeEntry(&e, fact, key, sum)
	l.idle = e.Fact.idle()
	if len(r.queue) >= maxQueue || r.bytes+len(l.text) > maxQueueBytes || !l.readable() {
		r.lost++
		delete(r.known, key)
		return
	}
	r.queue, r.bytes = append(r.queue, l), r.bytes+len(l.text)
	r.wake.Set()
}

// news reports whether a state is not recorded yet, and stores it. The caller holds r.mu.
func (r *Recorder) news(key uint64, sum uint32, idle bool) bool {
	if key == 0 {
		return true
	}
	last, has := r.known[key]
	if !isNews(last.sum, has, sum, idle) {
		return false
	}
	r.known[key] = state{sum: sum}
	return true
}

// Run writes entries until ctx ends, and returns nil after the last one is written. An error of the
// disk is logged once, and the entries that could not be written become a [Gap]. Run may be called
// once.
func (r *Recorder) Run(ctx context.Context) error {
	f := files{cfg: &r.cfg}
	defer f.end()
	// At the start of an agent, other work for the disk is more urgent.
	select {
	case <-ctx.Done():
	case <-time.After(writePause):
	}
	sums, err := f.open()
	if err != nil {
		r.cfg.Log.Error("failed to open the record of earlier facts; starting a new record", zap.String("dir", r.cfg.Dir), zap.Error(err))
	}
	r.load(sums)
	clock := time.Now()
	var synced time.Time
	dirty := false
	timer := time.NewTimer(0)
	if !timer.Stop() {
		<-timer.C
	}
	defer timer.Stop()
	due := false // the timer is set for a write, and not only for a sync
	for {
		select {
		case <-ctx.Done():
			r.Record(Entry{Fact: &Stop{}})
			r.write(&f)
			f.sync()
			return nil
		case <-r.wake:
			if !due {
				due = true
				timer.Reset(writePause)
			}
			continue
		case <-timer.C:
			due = false
		}
		// Without entries there is no timer, so the clock is not checked. A change is found with
		// the next entry.
		clock = r.checkClock(clock)
		dirty = r.write(&f) || dirty
		switch left := syncPause - time.Since(synced); {
		case !dirty:
		case left <= 0:
			f.sync()
			synced, dirty = time.Now(), false
		case !due:
			timer.Reset(left)
		}
	}
}

// load stores the states in the files, and drops the queued entries with the same states. The
// first entry is the Begin.
func (r *Recorder) load(sums map[uint64]state) {
	begin := Entry{At: milli(r.begun), Boot: r.cfg.Boot, Fact: &Begin{Node: r.cfg.Node, Version: r.cfg.Version}}
	first := encodeEntry(&begin, encode(begin.Fact), 0, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.loaded = sums, true
	kept := []line{first}
	r.bytes = len(first.text)
	for _, l := range r.queue {
		if r.news(l.key, l.state, l.idle) {
			kept = append(kept, l)
			r.bytes += len(l.text)
		}
	}
	r.queue = kept
	r.wake.Set()
}

// checkClock records a change of the wall clock since the time last, which has both clocks. A
// suspend of the machine counts too, since the monotonic clock stops meanwhile.
func (r *Recorder) checkClock(last time.Time) time.Time {
	now := time.Now()
	if by := now.Round(0).Sub(last.Round(0)) - now.Sub(last); by.Abs() > clockSlack {
		r.Record(Entry{Fact: &Clock{By: by.Round(time.Millisecond)}})
	}
	return now
}

// write writes the queue, and reports whether it has written anything.
func (r *Recorder) write(f *files) bool {
	r.mu.Lock()
	batch, lost := r.queue, r.lost
	r.queue, r.bytes, r.lost = nil, 0, 0
	r.mu.Unlock()
	if lost > 0 {
		e := Entry{At: milli(time.Now()), Boot: r.cfg.Boot, Fact: &Gap{Lost: lost}}
		batch = append(batch, encodeEntry(&e, encode(e.Fact), 0, 0))
	}
	if len(batch) == 0 {
		return false
	}
	n, removed, err := f.append(batch)
	if err != nil && !f.failed {
		r.cfg.Log.Error("failed to write the record; entries are lost", zap.String("dir", r.cfg.Dir), zap.Error(err))
	}
	f.failed = err != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, l := range batch {
		switch last, has := r.known[l.key]; {
		case l.key == 0 || !has || last.sum != l.state:
		case i < n:
			r.known[l.key] = state{sum: l.state, file: f.number(i)}
		default:
			delete(r.known, l.key) // recorded when it is passed again
		}
	}
	if removed > 0 { // states that only the removed files had are recorded when they are passed again
		for k, s := range r.known {
			if s.file != 0 && s.file <= removed {
				delete(r.known, k)
			}
		}
	}
	r.lost += len(batch) - n
	return n > 0
}

// files are the files of a recorder. One goroutine uses them.
type files struct {
	cfg    *Config
	dir    *safefile.Dir
	names  []string // oldest first
	sizes  []int64
	file   *os.File // the last of names, open for writing
	last   uint32   // number of file
	failed bool
	marks  []uint32 // the number of the file of each line of the last batch
}

// temporary is the name of a file that is being made.
const temporary = "new.tmp"

// open opens the directory and the file to append to, and returns the states that the files have.
func (f *files) open() (map[uint64]state, error) {
	sums := map[uint64]state{}
	if err := safefile.MakeDirs(f.cfg.Dir, 0o700); err != nil {
		return sums, err
	}
	dir, names, err := segments(f.cfg.Dir)
	if err != nil {
		return sums, err
	}
	f.dir, f.names, f.sizes = dir, nil, nil
	_ = dir.Remove(temporary)
	var whole []line // of the newest file
	for i, name := range names {
		number := numberOf(name)
		info, err := dir.Lstat(name)
		if err != nil {
			continue
		}
		whole = whole[:0]
		newest := i == len(names)-1
		err = f.lines(name, func(l line) {
			if l.key != 0 {
				sums[l.key] = state{sum: l.state, file: number}
			}
			if newest {
				whole = append(whole, l)
			}
		})
		if errors.Is(err, ErrVersion) && newest {
			whole = nil // a later release wrote it
		}
		if err != nil && !newest {
			f.cfg.Log.Warn("found damaged file of the record", zap.String("file", name), zap.Error(err))
		}
		f.names, f.sizes, f.last = append(f.names, name), append(f.sizes, info.Size()), number
	}
	// A new file starts with the entries of the newest one, unless that one is large. So several
	// starts of the agent in a row create neither many files nor large writes, and a line that a
	// crash cut off is dropped.
	if n := len(f.names) - 1; n >= 0 && len(whole) > 0 && f.sizes[n] < f.cfg.MaxBytes/parts/4 {
		if err := f.carryOn(n, whole); err == nil {
			return sums, nil
		}
	}
	return sums, f.begin()
}

// numberOf returns the number in the name of a file.
func numberOf(name string) uint32 {
	n, _ := hexNumber([]byte(strings.TrimSuffix(name, suffix)))
	return uint32(n)
}

// lines calls do with each valid line of a file.
func (f *files) lines(name string, do func(line)) error {
	file, err := f.dir.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	s, err := newScanner(io.LimitReader(file, f.cfg.MaxBytes))
	for err == nil {
		if err = s.next(); err == nil {
			do(s.line)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// carryOn replaces the file i by one with the same entries that is open for writing.
func (f *files) carryOn(i int, whole []line) error {
	file, err := f.dir.Create(temporary, 0o600)
	if err != nil {
		return err
	}
	text := []byte(header)
	for _, l := range whole {
		text = append(text, l.text...)
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = f.dir.Rename(temporary, f.names[i])
	}
	if err != nil {
		_ = file.Close()
		_ = f.dir.Remove(temporary)
		return err
	}
	f.file, f.sizes[i] = file, int64(len(text))
	return safefile.SyncDir(f.cfg.Dir)
}

// begin creates the next file of the record and opens it for writing.
func (f *files) begin() error {
	f.close()
	f.last++
	name := fmt.Sprintf("%08x%s", f.last, suffix)
	file, err := f.dir.Create(name, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(file, header); err != nil {
		_ = file.Close()
		_ = f.dir.Remove(name)
		return err
	}
	f.file, f.names, f.sizes = file, append(f.names, name), append(f.sizes, int64(len(header)))
	return safefile.SyncDir(f.cfg.Dir)
}

// append writes lines. It returns how many were written, and the number of the newest file that was
// removed to make room, 0 for none.
func (f *files) append(batch []line) (written int, removed uint32, err error) {
	f.marks = f.marks[:0]
	var text []byte
	flush := func() error {
		if len(text) == 0 {
			return nil
		}
		n := len(f.sizes) - 1
		_, err := f.file.Write(text)
		if err != nil {
			// Part of the entry may be written. The next entry begins after the last complete one.
			_ = f.file.Truncate(f.sizes[n])
			_, _ = f.file.Seek(f.sizes[n], io.SeekStart)
			return err
		}
		f.sizes[n] += int64(len(text))
		written, text = len(f.marks), text[:0]
		return nil
	}
	if f.dir == nil { // the disk failed before
		if _, err := f.open(); err != nil {
			return 0, 0, err
		}
	}
	for _, l := range batch {
		n := len(f.sizes) - 1
		if f.file == nil || f.sizes[n]+int64(len(text)+len(l.text)) > f.cfg.MaxBytes/parts {
			if err := flush(); err != nil {
				return written, removed, err
			}
			if err := f.begin(); err != nil {
				return written, removed, err
			}
			removed = max(removed, f.makeRoom())
		}
		text = append(text, l.text...)
		f.marks = append(f.marks, f.last)
	}
	err = flush()
	return written, removed, err
}

// number returns the number of the file that has line i of the last batch.
func (f *files) number(i int) uint32 { return f.marks[i] }

// makeRoom removes the oldest files until the newest one may grow to its full size. It returns the
// number of the last one that it removed.
func (f *files) makeRoom() (removed uint32) {
	total := f.cfg.MaxBytes / parts
	for _, s := range f.sizes[:len(f.sizes)-1] {
		total += s
	}
	for total > f.cfg.MaxBytes && len(f.names) > 1 {
		_ = f.dir.Remove(f.names[0])
		total -= f.sizes[0]
		removed = numberOf(f.names[0])
		f.names, f.sizes = f.names[1:], f.sizes[1:]
	}
	return removed
}

func (f *files) sync() {
	if f.file != nil {
		_ = f.file.Sync()
	}
}

// end closes the open file and the directory.
func (f *files) end() {
	f.close()
	if f.dir != nil {
		_ = f.dir.Close()
	}
}

// close closes the file that is open for writing.
func (f *files) close() {
	if f.file != nil {
		_ = f.file.Sync()
		_ = f.file.Close()
		f.file = nil
	}
}
