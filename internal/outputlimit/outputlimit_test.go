package outputlimit_test

import (
	"testing"

	"github.com/nodewright/nodewright/internal/outputlimit"
)

func TestOf(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct{ got, want int }{
		{outputlimit.Of(ctx, 10), 10},
		{outputlimit.Of(outputlimit.With(ctx, 3), 10), 3},
		{outputlimit.Of(outputlimit.With(ctx, 30), 10), 10},
		{outputlimit.Of(outputlimit.With(ctx, -1), 10), 0},
		{outputlimit.Of(outputlimit.With(outputlimit.With(ctx, 3), 5), 10), 5},
	} {
		if c.got != c.want {
			t.Errorf("%d, want %d", c.got, c.want)
		}
	}
}
