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

func TestCut(t *testing.T) {
	for _, tc := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc..."}, {"aüb", 2, "a..."}, {"aüb", 3, "aü..."}, {"\xff\xff", 1, "..."},
	} {
		if got := callerror.Cut(tc.text, tc.most); got != tc.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tc.text, tc.most, got, tc.want)
		}
	}
}

func TestBrief(t *testing.T) {
	cause := errors.New("cause")
	long := fmt.Errorf("a long text: %w", cause)
	if got := callerror.Brief(long, 6); got.Error() != "a long..." || !errors.Is(got, cause) {
		t.Errorf("%v", got)
	}
	if callerror.Brief(cause, 5) != cause || callerror.Brief(nil, 5) != nil {
		t.Error("a short error and nil stay as they are")
	}
}
