package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors that callers can distinguish.
var (
	// ErrNotExist means that the runtime does not know the container.
	ErrNotExist = errors.New("OCI runtime has no such container")
	// ErrNotRunning means that the container's process has ended.
	ErrNotRunning = errors.New("container is not running")
)

// Error is the failure of a command.
type Error struct {
	Runtime string // path
	Command string // for example "kill"
	ID      string // of the container; "" if the command concerns none
	// Message is the last error message of the runtime. It is "" if the runtime wrote none.
	Message string
	Err     error
}

func (e *Error) Error() string {
	s := filepath.Base(e.Runtime) + " " + e.Command
	if e.ID != "" {
		s += " " + e.ID
	}
	s += ": " + e.Err.Error()
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap returns the cause, for example [context.DeadlineExceeded].
func (e *Error) Unwrap() error { return e.Err }

// maxMessage is the length to which an error message of a runtime is cut, in bytes.
const maxMessage = 2 << 10

// LastError finds the last error in the output of a runtime (its log or stderr, as JSON or text),
// and returns it as one printable line. If no line is marked as an error, it returns the last
// line. If there is no line, it returns "".
func LastError(output []byte) string {
	output = output[max(0, len(output)-maxStderr):]
	last, lastError := "", ""
	for line := range bytes.Lines(output) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		message, isError := parseLine(line)
		if message == "" {
			continue
		}
		last = message
		if isError {
			lastError = message
		}
	}
	if lastError != "" {
		last = lastError
	}
	return printable(last)
}

// parseLine returns the message of a line in the format of logrus or crun, or else the whole
// line.
func parseLine(line []byte) (message string, isError bool) {
	if line[0] == '{' {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg != "" {
			return entry.Msg, grave(entry.Level)
		}
	}
	text := string(line)
	if i := strings.Index(text, "level="); i >= 0 && (i == 0 || text[i-1] == ' ') {
		level, rest, _ := strings.Cut(text[i+len("level="):], " ")
		if quoted, ok := strings.CutPrefix(rest, "msg="); ok {
			if quoted, err := prefixUnquoted(quoted); err == nil {
				return quoted, grave(level)
			}
			return quoted, grave(level)
		}
	}
	return text, false
}

// prefixUnquoted unquotes the Go string at the beginning of s.
func prefixUnquoted(s string) (string, error) {
	d := json.NewDecoder(strings.NewReader(s)) // logrus quotes like JSON except for rare bytes
	var out string
	if err := d.Decode(&out); err != nil {
		return "", fmt.Errorf("unquote: %w", err)
	}
	return out, nil
}

func grave(level string) bool { return level == "error" || level == "fatal" || level == "panic" }

// printable returns s as one line without control characters.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
