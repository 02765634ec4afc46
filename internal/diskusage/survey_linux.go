package diskusage

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/dirwalk"
)

const (
	// batch is the number of files between two pauses, and few the number of files between two
	// checks of the context.
	batch = 1000
	few   = 50
	// maxLinked is the maximum number of stored inodes with several links. For further inodes
	// with N links, each name counts as 1/N of the inode.
	maxLinked = 1 << 15
	// resumable is the longest pause after which a survey still continues where it stopped.
	resumable = 10 * time.Minute
	// share is the value of round.shares that stands for one inode.
	share = 1 << 20
)

// Survey walks a directory that is too large for one call: each call continues
// where the last one stopped. The zero value is ready. Calls must not overlap, and all
// calls must be for the same directory.
type Survey struct {
	known round // the last complete round
	now   round // the current round
	at    dirwalk.Position
	since time.Time // start of the pause between calls; zero if no round is unfinished
}

// round is the result of one complete walk, or of its part so far.
type round struct {
	bytes, files int64
	shares       int64               // parts of inodes that are not in linked
	linked       map[uint64]struct{} // counted inodes with several links
	partial      bool                // an entry or a directory could not be read
}

func (r *round) inodes() int64 { return r.files + r.shares/share }

// Unfinished reports whether the last call did not reach the end.
func (s *Survey) Unfinished() bool { return !s.since.IsZero() }

// Walk continues the walk of dir; see the function Walk. A round is one complete walk. If
// the current round is not complete at the end of the call, Walk returns the larger of
// the sum so far and the sum of the last complete round.
func (s *Survey) Walk(ctx context.Context, dir string, limits Limits) (Usage, error) {
	limits = limits.withDefaults()
	ctx, stop := context.WithTimeout(ctx, limits.Time)
	defer stop()
	u, err := Statfs(dir)
	if err != nil {
		return Usage{}, err
	}
	if !s.Unfinished() || time.Since(s.since) > resumable {
		s.now, s.at = round{linked: map[uint64]struct{}{}}, dirwalk.Position{}
	}
	tree, whole, err := dirwalk.Resume(dir, s.at)
	if err != nil {
		return Usage{}, err
	}
	defer tree.Close()
	if s.now.inodes() == 0 {
		var st unix.Stat_t
		if err := unix.Fstat(tree.Fd(), &st); err != nil {
			return Usage{}, tree.Fail("stat", "", err)
		}
		s.now.count(&st)
	}
	s.now.partial = s.now.partial || !whole
	w := &survey{round: &s.now, tree: tree, ctx: ctx, limits: limits, dev: tree.Dev()}
	done, err := w.walk()
	if err != nil {
		return Usage{}, err
	}
	u.At = time.Now()
	if done {
		s.now.linked = nil
		s.known, s.now, s.since = s.now, round{}, time.Time{}
		u.Used, u.InodesUsed, u.AtLeast = s.known.bytes, s.known.inodes(), s.known.partial
		return u, nil
	}
	u.Used, u.InodesUsed, u.AtLeast = max(s.now.bytes, s.known.bytes), max(s.now.inodes(), s.known.inodes()), true
	s.at, whole = tree.Position()
	s.now.partial = s.now.partial || !whole
	s.since = time.Now()
	return u, nil
}

// survey is the state of one call of Survey.Walk.
type survey struct {
	*round
	tree   *dirwalk.Walk
	ctx    context.Context
	limits Limits
	dev    uint64
	looked int // number of visited entries
}

// walk continues the walk within the limits, and reports whether the round is complete. It fails
// only if no entry of the first directory can be read.
func (w *survey) walk() (done bool, err error) {
	for {
		if w.spent() {
			return false, nil
		}
		event, err := w.tree.Next()
		switch event {
		case dirwalk.Entry:
			w.looked++
			w.entry()
			if w.looked%batch == 0 {
				w.rest()
			}
		case dirwalk.End:
			if err != nil && w.tree.Depth() == 0 && w.looked == 0 {
				return false, w.tree.Fail("read", "", err)
			}
			w.partial = w.partial || err != nil
		case dirwalk.Lost:
			w.partial = true
		case dirwalk.Back:
		case dirwalk.Done:
			return true, nil
		}
	}
}

// spent reports whether this call has reached its limits.
func (w *survey) spent() bool {
	return w.looked >= w.limits.Files || w.looked%few == 0 && w.ctx.Err() != nil
}

// rest waits for limits.Pause, so that other processes can use the disk.
func (w *survey) rest() {
	t := time.NewTimer(w.limits.Pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

// entry counts an entry, and enters it if it is a directory.
func (w *survey) entry() {
	var st unix.Stat_t
	err := unix.Fstatat(w.tree.Fd(), w.tree.Name(), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || uint64(st.Dev) != w.dev { //nolint:unconvert // 32 bits on some machines
		w.partial = w.partial || err != nil && !errors.Is(err, unix.ENOENT)
		return
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		w.count(&st)
		return
	}
	switch err := w.tree.Enter(); {
	case err == nil:
		w.count(&st)
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT):
	default:
		w.count(&st)
		w.partial = true
	}
}

// count adds a file to the round, unless it is one of several links to a counted inode.
func (r *round) count(st *unix.Stat_t) {
	bytes := st.Blocks * 512 // stat(2)
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if _, ok := r.linked[st.Ino]; ok {
			return
		}
		if len(r.linked) >= maxLinked {
			links := int64(st.Nlink)
			r.bytes += bytes / links
			r.shares += share / links
			return
		}
		r.linked[st.Ino] = struct{}{}
	}
	r.files++
	r.bytes += bytes
}
