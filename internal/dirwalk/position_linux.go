package dirwalk

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Position is the position of a walk, without descriptors. Its zero value is the
// beginning. It takes 40 bytes for each level.
type Position struct {
	levels []level // from the first directory down
}

// Position returns the position after the last entry. If the walk is more than [Remembered]
// levels deep, whole is false, and the walk continues from the position as after [Lost].
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
// directories were moved or removed; the walk then continues after their entries.
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

// resume enters the last entry that was read, if it is a directory with the inode ino.
func (w *Walk) resume(at level, ino uint64) bool {
	w.seek(at.before)
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
	w.leave() // it was moved between the two
	return false
}

func (w *Walk) restore(l level) {
	ino := w.Ino()
	w.seek(l.after)
	w.top().mark = l
	w.top().mark.ino = ino
}
