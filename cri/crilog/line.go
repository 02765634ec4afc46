package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Stdout and Stderr name a container's streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Line is one line of a log file. A long line of a container may consist of several Lines, of which
// all except the last are Partial.
type Line struct {
	At      time.Time
	Stream  string
	Partial bool
	Content []byte // without the newline
}

// ErrLine means that a text is not a line of a CRI log.
var ErrLine = errors.New("not a CRI log line")

// ParseLine parses one line without its newline: "<RFC 3339 time> <stdout|stderr> <tags>
// <content>", where the first tag is P for a part of a longer line and F for its end. Content
// shares the memory of line.
func ParseLine(line []byte) (Line, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return Line{}, ErrLine
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Line{}, fmt.Errorf("%w: %w", ErrLine, err)
	}
	name, rest, ok := bytes.Cut(rest, []byte{' '})
	l := Line{At: at}
	switch {
	case ok && string(name) == Stdout:
		l.Stream = Stdout
	case ok && string(name) == Stderr:
		l.Stream = Stderr
	default:
		return Line{}, fmt.Errorf("%w: stream %q; want stdout or stderr", ErrLine, name)
	}
	tags, content, _ := bytes.Cut(rest, []byte{' '})
	l.Content = content
	switch tag, _, _ := bytes.Cut(tags, []byte{':'}); string(tag) {
	case "P":
		l.Partial = true
	case "F":
	default:
		return Line{}, fmt.Errorf("%w: tag %q; want P or F", ErrLine, tag)
	}
	return l, nil
}
