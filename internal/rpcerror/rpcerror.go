// Package rpcerror makes errors that have a gRPC status and whose text is the message of that status.
// The text of an error of package status begins with the code, which people do not need.
package rpcerror

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// New returns an error with a code and a message.
func New(code codes.Code, message string) error { return Of(status.New(code, message)) }

// Errorf returns an error with a code and a formatted message. It wraps the operand of %w, if there
// is one.
func Errorf(code codes.Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &coded{status.New(code, err.Error()), errors.Unwrap(err)}
}

// Of returns the error of a status, whose code is not OK.
func Of(st *status.Status) error { return &coded{st: st} }

type coded struct {
	st    *status.Status
	cause error
}

// Error returns the message of the status.
func (e *coded) Error() string { return e.st.Message() }

// GRPCStatus returns the status. Package status calls it.
func (e *coded) GRPCStatus() *status.Status { return e.st }

// Unwrap returns the cause, or nil.
func (e *coded) Unwrap() error { return e.cause }

// Is reports whether target is context.DeadlineExceeded and the code is the same: callers that do not
// link gRPC recognize a timeout by it.
func (e *coded) Is(target error) bool {
	return target == context.DeadlineExceeded && e.st.Code() == codes.DeadlineExceeded
}
