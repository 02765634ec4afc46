package podlife

import (
	"errors"
	"fmt"
	"testing"
)

func TestReasonOf(t *testing.T) {
	base := errors.New("no such file")
	inner := WithReason("Inner", base)
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, ""}, {base, ""}, {inner, "Inner"},
		{fmt.Errorf("mount: %w", inner), "Inner"},
		{WithReason("Outer", fmt.Errorf("mount: %w", inner)), "Outer"},
		{errors.Join(base, inner, WithReason("Last", base)), "Inner"},
	} {
		if got := ReasonOf(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
	if inner.Error() != base.Error() || !errors.Is(inner, base) {
		t.Errorf("%v is not %v", inner, base)
	}
}
