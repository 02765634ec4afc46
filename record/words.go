package record

import (
	"context"
	"errors"
	"strings"
)

// errorWords has words for errors and the texts by which they are recognized, in the order in
// which they are tried. The text of an error comes from a server, registry, runtime or command,
// and may contain anything. So only one of these words is recorded.
var errorWords = []struct {
	word  string
	texts []string
}{
	{"no space left", []string{"no space left on device", "disk quota exceeded"}},
	{"connection refused", []string{"connection refused"}},
	{"connection reset", []string{"connection reset by peer", "broken pipe"}},
	{"no such host", []string{"no such host", "server misbehaving"}},
	{"no route", []string{"no route to host", "network is unreachable", "host is unreachable"}},
	{"certificate refused", []string{"x509: ", "tls: "}},
	{"not authorized", []string{"unauthorized", "401 ", "403 ", "denied: ", "pull access denied", "no basic auth"}},
	{"too many requests", []string{"toomanyrequests", "too many requests", "429 "}},
	{"hangs", []string{"hangs", "hung", "does not answer"}},
	{"timed out", []string{"context deadline exceeded", "deadlineexceeded", "timed out", "timeout", "i/o timeout"}},
	{"not found", []string{"not found", "no such file or directory", "does not exist"}},
	{"permission denied", []string{"permission denied", "operation not permitted"}},
	{"out of memory", []string{"cannot allocate memory", "out of memory"}},
	{"busy", []string{"device or resource busy", "text file busy", "already in use"}},
	{"I/O error", []string{"input/output error"}},
	{"read-only", []string{"read-only file system"}},
	{"connection closed", []string{"eof", "closed network connection"}},
	{"malformed answer", []string{"malformed"}},
	{"not serving", []string{"not_serving", "service unhealthy"}},
	{"not available", []string{"unavailable"}},
}

// otherError is the word for every other error.
const otherError = "another error"

// maxErrorText limits the bytes of an error that are searched for a word.
const maxErrorText = 4 << 10

// ErrorWord returns a word for the text of an error: one of a closed set such as "connection
// refused"; "" for no text.
func ErrorWord(text string) string {
	if text == "" {
		return ""
	}
	// The cause comes last in the texts of Go's errors.
	if len(text) > maxErrorText {
		text = text[len(text)-maxErrorText:]
	}
	text = strings.ToLower(text)
	for _, w := range errorWords {
		for _, t := range w.texts {
			if strings.Contains(text, t) {
				return w.word
			}
		}
	}
	return otherError
}

// WordOf is [ErrorWord] for an error; "" for nil.
func WordOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	default:
		return ErrorWord(err.Error())
	}
}

// maxReason and maxMessage limit a reason and a message of an entry in bytes.
const (
	maxReason  = 64
	maxMessage = 512
)

// Reason returns s if it is empty or has only ASCII letters and digits, and at most maxReason
// bytes, like the CamelCase reasons of the API and of runtimes. Otherwise it returns "Other", since
// s may be any text.
func Reason(s string) string {
	if s == "" {
		return ""
	}
	if len(s) > maxReason {
		return "Other"
	}
	for _, r := range s {
		if !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9') {
			return "Other"
		}
	}
	return s
}

// message returns s cut to maxMessage.
func message(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage]
	}
	return strings.ToValidUTF8(s, "?")
}
