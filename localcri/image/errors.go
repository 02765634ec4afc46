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
	// Neither the image nor a blob of it, here or at the registry.
	errNotFound = errors.New("not found")
	// The registry wants credentials, or others.
	errDenied = errors.New("denied")
	// Worth another try: no connection, 5xx, or an answer that breaks off.
	errUnavailable = errors.New("registry cannot be reached")
	// Size or digest differ; another endpoint may have the right ones.
	errWrongBytes = errors.New("not the bytes that were promised")
	errSignature  = errors.New("signature is not accepted")
	// The request, a name, or the archive itself: a repetition fails as well.
	errInvalid = errors.New("invalid")
	errClosed  = errors.New("image store does not run")
	// Config.ProgressTimeout, as the cause of a context.
	errNoProgress = errors.New("no byte for too long")
)

// coded gives an error the code that the CRI has for it. Where the CRI defines a
// word, the message begins with it.
func coded(err error) error {
	if err == nil {
		return nil
	}
	// An error that has a code keeps it, so that public methods may call each other.
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	text := err.Error()
	code := codes.Unknown
	// The order matters where errors wrap several: the end of a context is often the
	// cause of an unreachable registry, and the verdict on a signature stands above
	// all.
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
		// The kubelet sorts failed pulls by these words at the beginning of the
		// message.
		code, text = codes.Unavailable, crierrors.ErrRegistryUnavailable.Error()+": "+text
	case errors.Is(err, errNotFound):
		code = codes.NotFound
	case errors.Is(err, errDenied):
		code = codes.PermissionDenied
	case errors.Is(err, errFull), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = codes.ResourceExhausted
	case errors.Is(err, errInvalid), errors.Is(err, errLimit):
		code = codes.InvalidArgument
	// Worth a retry, but without the prefix: no registry has been asked.
	case errors.Is(err, errClosed):
		code = codes.Unavailable
	}
	// 4 KiB: the message ends up in events and pod statuses.
	const most = 4 << 10
	if len(text) > most {
		text = text[:most] + "..."
	}
	return status.Error(code, text)
}
