//go:build linux

package image

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/nodewright/nodewright/internal/rpcerror"
)

// Errors that have a gRPC code.
var (
	// errNotFound means that the image or a blob exists neither here nor at the registry.
	errNotFound = errors.New("not found")
	// errDenied means that the registry requires credentials, or other credentials than it got.
	errDenied = errors.New("denied")
	// errUnavailable means that another try may help: there is no connection, the status is 5xx,
	// or the answer is incomplete.
	errUnavailable = errors.New("registry cannot be reached")
	// errNotConnected is an errUnavailable without a connection to the server.
	errNotConnected = fmt.Errorf("%w", errUnavailable)
	// errWrongBytes means that size or digest differ. Another endpoint may have the right
	// content.
	errWrongBytes = errors.New("content differs from its digest or size")
	// errWrongDigest is an errWrongBytes of a whole blob.
	errWrongDigest = fmt.Errorf("%w", errWrongBytes)
	// errWrongLength is an errWrongBytes of an answer whose length is not that of the blob. It says
	// nothing about the bytes that are on the disk already.
	errWrongLength = fmt.Errorf("%w", errWrongBytes)
	errSignature   = errors.New("signature is not accepted")
	// errInvalid means that the request, a name or the archive is wrong. Another try fails as
	// well.
	errInvalid = errors.New("invalid")
	errClosed  = errors.New("image store is not running")
	// errNoProgress is the cause of a context that a watch has cancelled, because no data came
	// for its time limit.
	errNoProgress = errors.New("no data received for too long")
)

// coded converts an error to a gRPC status with the code for it in the CRI. If the CRI defines a
// prefix, the message begins with it.
func coded(err error) error {
	if err == nil {
		return nil
	}
	// A status keeps its code, so that public methods may call each other.
	if s, ok := status.FromError(err); ok {
		return rpcerror.Of(s)
	}
	text := err.Error()
	code := codes.Unknown
	// The order matters if an error wraps several: the end of a context is often the cause of an
	// unreachable registry, and a rejected signature takes precedence over everything.
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
		// The kubelet classifies failed pulls by this prefix of the message.
		code, text = codes.Unavailable, crierrors.ErrRegistryUnavailable.Error()+": "+text
	case errors.Is(err, errNotFound):
		code = codes.NotFound
	case errors.Is(err, errDenied):
		code = codes.PermissionDenied
	case errors.Is(err, errFull), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = codes.ResourceExhausted
	case errors.Is(err, errInvalid), errors.Is(err, errLimit):
		code = codes.InvalidArgument
	// Another try may help, but without the prefix: the error is not a registry's.
	case errors.Is(err, errClosed):
		code = codes.Unavailable
	}
	// 4 KiB: the message ends up in events and pod statuses.
	const most = 4 << 10
	if len(text) > most {
		text = text[:most] + "..."
	}
	return rpcerror.New(code, text)
}
