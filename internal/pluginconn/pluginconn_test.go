package pluginconn_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/pluginconn"
)

func TestError(t *testing.T) {
	away := errors.New("plugin is away")
	long := strings.Repeat("x", pluginconn.MaxText+1)
	for _, tc := range []struct {
		err  error
		text string
		is   error // in the error's chain; nil for none
	}{
		{nil, "", nil},
		{fs.ErrNotExist, "file does not exist", fs.ErrNotExist},
		{status.Error(codes.Unavailable, "connection refused"), "plugin is away: connection refused", away},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), "no answer in time: context deadline exceeded", context.DeadlineExceeded},
		{status.Error(codes.Unknown, "no such GPU"), "no such GPU", nil},
		{status.Error(codes.Internal, "no such GPU"), "no such GPU (Internal)", nil},
		{status.Error(codes.Internal, long), long[1:] + "... (Internal)", nil},
	} {
		err := pluginconn.Error(tc.err, away)
		if (err == nil) != (tc.err == nil) || err != nil && err.Error() != tc.text || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%v: %v, want %q, which is %v", tc.err, err, tc.text, tc.is)
		}
	}
}
