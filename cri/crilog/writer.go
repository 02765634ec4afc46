package crilog

import (
	"bufio"
	"errors"
	"io"
	"time"
)

// maxLine is the largest number of bytes of a line that are kept in memory. Runtimes split lines at
// 16 KiB; longer lines come from other programs.
const maxLine = 256 << 10

// errLimit is the error that ends a copy at Options.Limit.
var errLimit = errors.New("limit reached")

// lineWriter converts lines of a CRI log to the output of the container.
type lineWriter struct {
	w       io.Writer
	opts    Options
	left    int64  // bytes left until Options.Limit
	pending []byte // a line whose newline has not been read yet
	inside  bool   // the next line continues a line of several parts
	spill   spill  // how the rest of a line that is too long is handled
	out     []byte
}

type spill int

const (
	noSpill   spill = iota
	spillKeep       // the rest is written, with its newline
	spillJoin       // the rest is written without its newline, since more parts follow
	spillDrop       // the rest is not written, since the line is filtered out
)

func (l *lineWriter) drain(r *bufio.Reader) error {
	for {
		chunk, err := r.ReadSlice('\n')
		whole := err == nil
		if err := l.take(chunk, whole); err != nil {
			return err
		}
		switch {
		case whole, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

func (l *lineWriter) take(chunk []byte, whole bool) error {
	if l.spill != noSpill {
		return l.takeSpill(chunk, whole)
	}
	line := chunk
	if len(l.pending) > 0 || !whole {
		l.pending = append(l.pending, chunk...)
		line = l.pending
	}
	switch {
	case whole:
		err := l.write(line[:len(line)-1], false)
		l.pending = l.pending[:0]
		return err
	case len(l.pending) > maxLine:
		err := l.write(l.pending, true)
		l.pending = l.pending[:0]
		return err
	}
	return nil
}

func (l *lineWriter) takeSpill(chunk []byte, whole bool) error {
	kind := l.spill
	if whole {
		l.spill = noSpill
		if kind == spillJoin {
			chunk = chunk[:len(chunk)-1]
		}
	}
	if kind == spillDrop {
		return nil
	}
	return l.put(chunk)
}

// rest writes a last line that has no newline.
func (l *lineWriter) rest() error {
	if len(l.pending) == 0 {
		return nil
	}
	err := l.write(l.pending, false)
	l.pending = l.pending[:0]
	return err
}

// write writes a line without its newline. If cut is set, raw is the beginning of a line that is
// too long.
func (l *lineWriter) write(raw []byte, cut bool) error {
	then := func(s spill) {
		if cut {
			l.spill = s
		}
	}
	line, err := ParseLine(raw)
	if err != nil {
		// Whatever else is in the file is shown as it is.
		then(spillKeep)
		l.out = append(l.out[:0], raw...)
		if !cut {
			l.out = append(l.out, '\n')
		}
		return l.put(l.out)
	}
	if line.At.Before(l.opts.Since) || l.opts.Stream != "" && line.Stream != l.opts.Stream {
		then(spillDrop)
		return nil
	}
	l.out = l.out[:0]
	if l.opts.Timestamps && !l.inside {
		l.out = append(line.At.AppendFormat(l.out, time.RFC3339Nano), ' ')
	}
	l.out = append(l.out, line.Content...)
	l.inside = line.Partial
	switch {
	case line.Partial:
		then(spillJoin)
	case cut:
		then(spillKeep)
	default:
		l.out = append(l.out, '\n')
	}
	return l.put(l.out)
}

func (l *lineWriter) put(b []byte) error {
	if l.opts.Limit <= 0 {
		_, err := l.w.Write(b)
		return err
	}
	n := min(int64(len(b)), l.left)
	if _, err := l.w.Write(b[:n]); err != nil {
		return err
	}
	if l.left -= n; l.left == 0 {
		return errLimit
	}
	return nil
}
