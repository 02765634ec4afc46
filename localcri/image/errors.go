//go:build linux

package image

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// What went wrong, as far as it has a code of its own.
var (
	errNotFound    = errors.New("not found")
	errDenied      = errors.New("denied")
	errUnavailable = errors.New("registry cannot be reached")
	errWrongBytes  = errors.New("not the bytes that were promised")
	errSignature   = errors.New("signature is not accepted")
	errInvalid     = errors.New("invalid")
	errClosed      = errors.New("image store does not run")
	errNoProgress  = errors.New("no byte for too long")
)

// coded gives an error the code that the CRI has for it. Where the CRI defines a
// word, the message begins with it.
func coded(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	text := err.Error()
	code := codes.Unknown
	switch {
	case errors.Is(err, errSignature):
		code, text = codes.PermissionDenied, crierrors.ErrSignatureValidationFailed.Error()+": "+text
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, errWrongBytes):
		code = codes.DataLoss
	case errors.Is(err, errUnavailable), errors.Is(err, errNoProgress):
		code, text = codes.Unavailable, crierrors.ErrRegistryUnavailable.Error()+": "+text
	case errors.Is(err, errNotFound):
		code = codes.NotFound
	case errors.Is(err, errDenied):
		code = codes.PermissionDenied
	case errors.Is(err, errFull), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = codes.ResourceExhausted
	case errors.Is(err, errInvalid), errors.Is(err, errLimit):
		code = codes.InvalidArgument
	case errors.Is(err, errClosed):
		code = codes.Unavailable
	}
	const most = 4 << 10
	if len(text) > most {
		text = text[:most] + "..."
	}
	return status.Error(code, text)
}
