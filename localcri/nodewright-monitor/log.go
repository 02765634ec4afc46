//go:build linux

package main

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	batchSize  = 16 << 10 // bytes that are read at most before they are written
	formatSize = 64 << 10 // bytes of lines that are written at once
	prefixSize = len("2006-01-02T15:04:05.000000000Z stdout F ")
)

// Limits of a container's log, in bytes that include the prefixes of lines: logBurst at once, and
// logRate a second in the long run. Output above the limits is dropped, and a line says how much.
// Otherwise a container that writes only newlines would make its monitor write 40 bytes for each,
// with CPU time that is not charged to the container.
const (
	logBurst = 256 << 20
	logRate  = 16 << 20
)

var streamNames = [2]string{" stdout ", " stderr "}

// logFile writes lines in the CRI's format. A line that is longer than a batch, or that is
// incomplete when no more data is available, is written in parts (P), and the last part is F. So
// data never waits for the rest of its line. If a stream ends within a line, the last part is P,
// which tells readers that there was no newline.
type logFile struct {
	path string // "" discards the output
	fd   int

	last    int64  // time of the last line, in nanoseconds since 1970
	cut     bool   // the file ends within a line
	lost    uint64 // bytes of the container's output that were not written
	failing bool
	spent   int64  // bytes of logBurst that are used up
	since   int64  // time at which spent was computed
	dropped uint64 // dropped bytes that the next line reports
	failed  func(lost uint64, message string)

	out []byte // lines that are not written yet
}

// openLog opens a log, and creates it if it is missing. No part of the path may be a link, since
// containers may have access to the directory.
func openLog(path string) (fd int, cut bool, last int64, err error) {
	fd, err = unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_RDWR | unix.O_APPEND | unix.O_CREAT | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
		Mode:    0o640,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, false, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("not a regular file")
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, false, 0, err
	}
	cut, last = logEnd(fd, st.Size)
	return fd, cut, last, nil
}

// logEnd reads the end of a log. cut reports whether the last line is incomplete, and last is the
// time of the last line that begins in the part that was read.
func logEnd(fd int, size int64) (cut bool, last int64) {
	if size == 0 {
		return false, 0
	}
	b := make([]byte, min(size, batchSize+2*int64(prefixSize)))
	n, err := unix.Pread(fd, b, size-int64(len(b)))
	if err != nil || n != len(b) {
		return true, 0 // an additional newline does no harm
	}
	cut = b[n-1] != '\n'
	for end := n - 1; end >= 0; {
		start := bytes.LastIndexByte(b[:end], '\n') + 1
		if at, ok := parseTime(b[start:]); ok {
			return cut, at
		}
		end = start - 1
	}
	return cut, 0
}

func newLog(path string, failed func(uint64, string)) (*logFile, error) {
	l := &logFile{path: path, fd: -1, failed: failed}
	if path == "" {
		return l, nil
	}
	var err error
	l.fd, l.cut, l.last, err = openLog(path)
	return l, err
}

// reopen continues the log in another file. If that cannot be opened, the log stays in the old
// file.
func (l *logFile) reopen(path string) error {
	fd, cut, last, err := openLog(path)
	if err != nil {
		return err
	}
	l.close()
	l.path, l.fd, l.cut, l.last = path, fd, cut, max(l.last, last)
	return nil
}

func (l *logFile) close() {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
		l.fd = -1
	}
}

// write logs data that was read from a stream at the time now. It returns how many bytes at the
// end are not a complete line and were not written; the caller passes them again with the data
// that follows. If all is true, everything is written. out is a buffer for lines.
func (l *logFile) write(stream int, data []byte, now int64, all bool, out []byte) (left int) {
	if l.fd < 0 {
		if l.path != "" { // it could not be opened when the container was adopted
			l.lose(uint64(len(data)), "log is not open")
		}
		return 0
	}
	l.last = max(l.last, now)
	if !l.allows(now, data) {
		l.dropped += uint64(len(data))
		l.lost += uint64(len(data))
		return 0
	}
	l.out = out[:0]
	stamp := appendTime(make([]byte, 0, stampSize), l.last)
	if l.dropped > 0 {
		l.out = append(append(append(l.out, stamp...), streamNames[1]...), "F nodewright: dropped "...)
		l.out = append(strconv.AppendUint(l.out, l.dropped, 10), " bytes of output: the log has at most 16 MiB a second\n"...)
		l.dropped = 0
		l.flush()
	}
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 && !all {
			break
		}
		if cap(l.out)-len(l.out) < prefixSize+len(data)+1 {
			l.flush()
		}
		l.out = append(append(l.out, stamp...), streamNames[stream]...)
		if i < 0 {
			l.out = append(append(append(l.out, 'P', ' '), data...), '\n')
			data = nil
			break
		}
		l.out = append(append(l.out, 'F', ' '), data[:i+1]...)
		data = data[i+1:]
	}
	l.flush()
	l.out = nil
	return len(data)
}

// allows reports whether data may be written to the log now, and counts it if so.
func (l *logFile) allows(now int64, data []byte) bool {
	if passed := now - l.since; passed > 0 {
		l.spent = max(l.spent-int64(float64(passed)/1e9*logRate), 0)
		l.since = now
	}
	// Once data is dropped, all data is dropped until a second's worth of data fits again, so that
	// one line reports the loss.
	if l.spent > logBurst || l.dropped > 0 && l.spent > logBurst-logRate {
		return false
	}
	l.spent += int64(len(data) + (bytes.Count(data, []byte{'\n'})+1)*prefixSize)
	return true
}

// flush writes the lines in l.out. Data that the disk does not accept is lost and counted: the
// container never waits for the disk.
func (l *logFile) flush() {
	b := l.out
	l.out = l.out[:0]
	if len(b) == 0 {
		return
	}
	var err error
	if l.cut {
		if err = writeAll(l.fd, []byte{'\n'}, nil); err == nil {
			l.cut = false
		}
	}
	done := 0
	if err == nil {
		err = writeAll(l.fd, b, &done)
	}
	if err == nil {
		if l.failing {
			l.failing = false
			l.failed(l.lost, "")
		}
		return
	}
	lost := uint64(0)
	for start := 0; start < len(b); {
		end := start + bytes.IndexByte(b[start:], '\n') + 1
		if end > done {
			l.cut = l.cut || done > start
			lost += uint64(end - start - prefixSize)
			if b[start+prefixSize-2] == 'P' {
				lost-- // the newline of a part is the monitor's
			}
		}
		start = end
	}
	l.lose(lost, err.Error())
}

// lose counts lost bytes, and reports the first loss.
func (l *logFile) lose(bytes uint64, message string) {
	l.lost += bytes
	if !l.failing {
		l.failing = true
		l.failed(l.lost, message)
	}
}

func writeAll(fd int, b []byte, done *int) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n <= 0:
			return unix.EIO
		}
		if done != nil {
			*done += n
		}
		b = b[n:]
	}
	return nil
}
