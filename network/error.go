package network

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Code is a kind of error. The numbers are those of gRPC's codes, so that a
// server converts one to the other.
type Code uint32

// The codes that a [Network] and its plugins use.
const (
	OK                 Code = 0 // no error
	Canceled           Code = 1 // the caller gave up
	Unknown            Code = 2
	InvalidArgument    Code = 3 // the attachment can never work
	DeadlineExceeded   Code = 4
	AlreadyExists      Code = 6  // another attachment has the resource, such as a host port
	ResourceExhausted  Code = 8  // a resource is used up, such as addresses
	FailedPrecondition Code = 9  // a person has to change something first
	Unavailable        Code = 14 // it may work later
)

// String returns gRPC's name of the code.
func (c Code) String() string {
	switch c {
	case OK:
		return "OK"
	case Canceled:
		return "Canceled"
	case Unknown:
		return "Unknown"
	case InvalidArgument:
		return "InvalidArgument"
	case DeadlineExceeded:
		return "DeadlineExceeded"
	case AlreadyExists:
		return "AlreadyExists"
	case ResourceExhausted:
		return "ResourceExhausted"
	case FailedPrecondition:
		return "FailedPrecondition"
	case Unavailable:
		return "Unavailable"
	default:
		return "Code(" + strconv.FormatUint(uint64(c), 10) + ")"
	}
}

// Error is an error of a known kind. A [Plugin] returns one, alone or wrapped,
// where the kind matters to the caller of [Network.Attach].
type Error struct {
	Code Code
	Err  error // not nil
}

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an [Error] with the text of fmt.Errorf.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// CodeOf returns the code of the first [Error] in the tree of err. If there is none, the code is
// DeadlineExceeded or Canceled for the errors of a context, OK for nil, and otherwise Unknown.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	default:
		return Unknown
	}
}
