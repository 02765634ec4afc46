package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A CRI log line is "<RFC 3339 time> <stdout|stderr> <tags> <content>", where
// the first tag is P for a part of a longer line and F for its end (the CRI
// logging design document).
type logLine struct {
	at      time.Time
	partial bool
	content []byte // without the newline
}

var errLogLine = errors.New("not a CRI log line")

// parseLogLine reads one line, given without its newline. The content is a
// part of line, not a copy.
func parseLogLine(line []byte) (logLine, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return logLine{}, errLogLine
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return logLine{}, fmt.Errorf("%w: %w", errLogLine, err)
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || (string(stream) != "stdout" && string(stream) != "stderr") {
		return logLine{}, fmt.Errorf("%w: stream %q", errLogLine, stream)
	}
	tags, content, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		content = nil
		tags = rest
	}
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	switch string(tag) {
	case "P":
		return logLine{at: at, partial: true, content: content}, nil
	case "F":
		return logLine{at: at, content: content}, nil
	default:
		return logLine{}, fmt.Errorf("%w: tag %q", errLogLine, tag)
	}
}

// tailStart returns the offset at which the last n lines of f begin.
func tailStart(f io.ReaderAt, size, n int64) (int64, error) {
	if n < 0 {
		return 0, nil
	}
	if n == 0 {
		return size, nil
	}
	const block = 32 << 10
	buf := make([]byte, block)
	seen := int64(0)
	// The last byte ends the last line, be it a newline or not, and so
	// never begins one.
	for end := size - 1; end > 0; {
		start := max(0, end-block)
		b := buf[:end-start]
		if _, err := f.ReadAt(b, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != '\n' {
				continue
			}
			if seen++; seen == n {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}

// copyLog writes the log at path to w as opts say. With Follow it goes on, over
// rotations, until ctx ends or ended says that nothing more will come. flush
// is called whenever what is there has been written.
func copyLog(ctx context.Context, w io.Writer, flush func(), path string, opts LogOptions, ended func() bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	start, err := tailStart(f, fi.Size(), opts.Tail)
	if err != nil {
		return err
	}
	if _, err := f.Seek(start, io.SeekStart); err != nil {
		return err
	}
	var watch *fsnotify.Watcher
	if opts.Follow {
		if watch, err = fsnotify.NewWatcher(); err != nil {
			return err
		}
		defer func() { _ = watch.Close() }()
		if err := watch.Add(filepath.Dir(path)); err != nil {
			return err
		}
	}
	lw := lineWriter{w: w, opts: opts}
	r := bufio.NewReaderSize(f, 32<<10)
	for {
		if err := lw.drain(r); err != nil {
			return err
		}
		flush()
		if !opts.Follow {
			return lw.rest()
		}
		over := ended()
		if !over {
			if err := awaitChange(ctx, watch); err != nil {
				return nil
			}
		}
		// A rotation puts a new file in the old one's place; what the old
		// one still got comes first.
		if err := lw.drain(r); err != nil {
			return err
		}
		if now, err := os.Stat(path); err == nil && !os.SameFile(now, fi) {
			next, err := os.Open(path)
			if err != nil {
				return err
			}
			_ = f.Close()
			f = next
			if fi, err = f.Stat(); err != nil { // now may have been rotated, too
				return err
			}
			r.Reset(f)
			continue
		}
		if over {
			flush()
			return lw.rest()
		}
	}
}

// awaitChange waits until the log may have grown, been rotated or ended. The
// end of a container shows in no file, hence the second's limit.
func awaitChange(ctx context.Context, watch *fsnotify.Watcher) error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-watch.Events:
	case err := <-watch.Errors:
		_ = err // events may have been lost: look
	case <-t.C:
	}
	return nil
}

// lineWriter turns CRI log lines into what the container wrote.
type lineWriter struct {
	w       io.Writer
	opts    LogOptions
	pending []byte // a line whose newline has not been written yet
	inside  bool   // within a line of several parts
}

func (l *lineWriter) drain(r *bufio.Reader) error {
	for {
		chunk, err := r.ReadSlice('\n')
		l.pending = append(l.pending, chunk...)
		switch {
		case err == nil:
			if err := l.write(l.pending[:len(l.pending)-1]); err != nil {
				return err
			}
			l.pending = l.pending[:0]
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// rest writes a last line that has no newline.
func (l *lineWriter) rest() error {
	if len(l.pending) == 0 {
		return nil
	}
	err := l.write(l.pending)
	l.pending = nil
	return err
}

func (l *lineWriter) write(raw []byte) error {
	line, err := parseLogLine(raw)
	if err != nil {
		// Whatever else is in the file is shown as it is.
		_, err := fmt.Fprintf(l.w, "%s\n", raw)
		return err
	}
	if line.at.Before(l.opts.Since) {
		return nil
	}
	var out []byte
	if l.opts.Timestamps && !l.inside {
		out = append(line.at.AppendFormat(out, time.RFC3339Nano), ' ')
	}
	out = append(out, line.content...)
	if l.inside = line.partial; !line.partial {
		out = append(out, '\n')
	}
	_, err = l.w.Write(out)
	return err
}
