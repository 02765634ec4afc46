// Package callerror formats errors of gRPC calls for pods' statuses and events.
package callerror

import (
	"errors"
	"strings"
)

// Shown returns the text of err. If err wraps the error of a gRPC call, the text has
// the message of the call's error without its code.
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
