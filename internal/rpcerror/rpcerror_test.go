package rpcerror_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/rpcerror"
)

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		err     error
		code    codes.Code
		text    string
		timeout bool
	}{
		{rpcerror.New(codes.NotFound, "no such image"), codes.NotFound, "no such image", false},
		{rpcerror.Errorf(codes.Unknown, "open %q: %w", "x", fs.ErrNotExist), codes.Unknown, `open "x": file does not exist`, false},
		{rpcerror.New(codes.DeadlineExceeded, "too late"), codes.DeadlineExceeded, "too late", true},
		{rpcerror.Of(status.New(codes.Canceled, "stopped")), codes.Canceled, "stopped", false},
		{fmt.Errorf("pull: %w", rpcerror.New(codes.Unavailable, "no network")), codes.Unavailable, "pull: no network", false},
	} {
		st, ok := status.FromError(tc.err)
		if tc.err.Error() != tc.text || !ok || st.Code() != tc.code || st.Message() != tc.text || errors.Is(tc.err, context.DeadlineExceeded) != tc.timeout {
			t.Errorf("%v: %v, %v; want %v, %q, timeout %v", tc.err, st, ok, tc.code, tc.text, tc.timeout)
		}
	}
	if err := rpcerror.Errorf(codes.Unknown, "open: %w", fs.ErrNotExist); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the operand of %w is not wrapped")
	}
}
