package dirwalk

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Position stores how far a walk has come, without open descriptors. The zero value is the
// beginning. A Position takes 32 bytes per level of depth.
type Position struct {
	levels []level // from the first directory down
}

// Position returns the position after the last entry. whole is false if the walk is so deep that it
// has dropped levels (see [Remembered]). A walk that resumes there continues as after [Lost].
func (w *Walk) Position() (p Position, whole bool) {
	for _, f := range w.frames[:min(len(w.frames), Held)] {
		p.levels = append(p.levels, f.mark)
	}
	if w.depth < Held {
		return p, true
	}
	if w.depth > Held+len(w.deep) {
		return p, false
	}
	p.levels = slices.Concat(p.levels, w.deep, []level{w.top().mark})
	return p, true
}

// Resume opens dir as [Open] does and continues at a position. whole is false if
// directories on the path to the position were moved or removed. The walk then continues
// after the entry of the first of them.
func Resume(dir string, p Position) (w *Walk, whole bool, err error) {
	w, err = Open(dir)
	if err != nil || len(p.levels) == 0 {
		return w, true, err
	}
	if p.levels[0].ino != w.Ino() {
		return w, false, nil
	}
	for i, l := range p.levels[1:] {
		if !w.resume(p.levels[i], l.ino) {
			w.restore(p.levels[i])
			return w, false, nil
		}
	}
	w.restore(p.levels[len(p.levels)-1])
	return w, true, nil
}

// resume enters the last entry of the position pos if the entry is a directory with the inode ino,
// and returns true. Otherwise the current directory stays the same.
func (w *Walk) resume(pos level, ino uint64) bool {
	w.seek(pos.before)
	if event, err := w.read(); event != Entry || err != nil {
		return false
	}
	fd, is, err := w.open(w.Fd(), w.name)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	if is != ino || w.Enter() != nil {
		return false
	}
	if w.Ino() == ino {
		return true
	}
	w.leave() // the directory was replaced between open and Enter
	return false
}

// restore sets the position in the current directory to l, but keeps the directory's inode.
func (w *Walk) restore(l level) {
	ino := w.Ino()
	w.seek(l.after)
	w.top().mark = l
	w.top().mark.ino = ino
}
