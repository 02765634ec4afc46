// Package rpcerror creates errors with a gRPC status. Their text is only the message of the status.
// The text of an error of package status, in contrast, begins with "rpc error: code =".
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

// Of returns an error with the status st, whose code must not be OK.
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

// Is reports whether target is context.DeadlineExceeded and the status code is DeadlineExceeded, so
// that callers that do not link gRPC can recognize a timeout.
func (e *coded) Is(target error) bool {
	return target == context.DeadlineExceeded && e.st.Code() == codes.DeadlineExceeded
}
