// Package callerror has the errors of calls in words for people.
package callerror

import (
	"errors"
	"strings"
)

// Shown returns an error as pods' statuses and events show it: where it wraps the
// error of a call, the message of whoever was called stands in the place of that
// error's text, without its code.
func Shown(err error) string {
	text := err.Error()
	var call interface {
		error
		Message() string
	}
	if errors.As(err, &call) {
		text = strings.Replace(text, call.Error(), call.Message(), 1)
	}
	return text
}
