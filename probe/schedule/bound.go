package schedule

import (
	"strings"

	"github.com/nodewright/nodewright/probe/check"
)

// bounded is at most check.MaxOutput bytes of a text, and does not keep more.
func bounded(s string) string {
	if len(s) <= check.MaxOutput {
		return s
	}
	return strings.Clone(s[:check.MaxOutput])
}

// longError is an error of which others hear the beginning only: its text may
// be that of whoever was checked.
type longError struct {
	text string
	err  error
}

func (e *longError) Error() string { return e.text }

// Unwrap returns the error as it was.
func (e *longError) Unwrap() error { return e.err }

func boundedError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) <= check.MaxOutput {
		return err
	}
	return &longError{text: bounded(text), err: err}
}
