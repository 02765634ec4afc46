package check

import (
	"strings"
)

// bounded returns a copy of the first MaxOutput bytes of a text.
func bounded(s string) string {
	if len(s) <= MaxOutput {
		return s
	}
	return strings.Clone(s[:MaxOutput])
}

// longError is an error with a shortened text: the text may come from the checked
// server.
type longError struct {
	text string
	err  error
}

func (e *longError) Error() string { return e.text }

// Unwrap returns the original error.
func (e *longError) Unwrap() error { return e.err }

func boundedError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) <= MaxOutput {
		return err
	}
	return &longError{text: bounded(text), err: err}
}
