// Package callerror formats errors of calls for pods' statuses, events and logs.
package callerror

import (
	"errors"
	"strings"
)

// Shown returns the text of err. If err wraps the error of a gRPC call, the text contains
// the call's message without the status code.
func Shown(err error) string {
	text := err.Error()
	var call interface {
		error
		Message() string
	}
	if errors.As(err, &call) {
		text = strings.Replace(text, call.Error(), call.Message(), 1)
	}
	return withoutCode(text)
}

// withoutCode removes the status code with which gRPC begins the text of an error.
func withoutCode(text string) string {
	const begin, end = "rpc error: code = ", " desc = "
	before, rest, found := strings.Cut(text, begin)
	if !found {
		return text
	}
	code, message, found := strings.Cut(rest, end)
	if !found || strings.ContainsAny(code, " :") {
		return text
	}
	return before + message
}

// Cut returns text if it has at most limit bytes. Otherwise it returns the first limit bytes,
// without an incomplete character at their end, and "...".
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}

// Brief returns an error that wraps err and has its text, cut by [Cut]. If the text has at most
// limit bytes, or if err is nil, it returns err itself.
func Brief(err error, limit int) error {
	if err == nil || len(err.Error()) <= limit {
		return err
	}
	return &brief{Cut(err.Error(), limit), err}
}

type brief struct {
	text string
	err  error
}

func (b *brief) Error() string { return b.text }
func (b *brief) Unwrap() error { return b.err }
