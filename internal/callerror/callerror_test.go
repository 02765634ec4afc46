package callerror_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nodewright/nodewright/internal/callerror"
)

type call struct{ code, message string }

func (c call) Error() string   { return "code = " + c.code + ": " + c.message }
func (c call) Message() string { return c.message }

func TestShown(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{call{"NotFound", "no such image"}, "no such image"},
		{errors.New("start: rpc error: code = Unknown desc = no such program"), "start: no such program"},
		{errors.New("rpc error: code = of a kind desc = x"), "rpc error: code = of a kind desc = x"},
		{fmt.Errorf("pull: %w", call{"NotFound", "no such image"}), "pull: no such image"},
	} {
		if got := callerror.Shown(tc.err); got != tc.want {
			t.Errorf("Shown(%v) = %q, want %q", tc.err, got, tc.want)
		}
	}
}
