// Package outputlimit says how much of a command's output its caller uses. The CRI has no
// field for it; a runtime in the same process keeps no more than that.
package outputlimit

import "context"

type key struct{}

// With returns a context for a command of which the caller uses at most so many bytes of
// each stream.
func With(ctx context.Context, bytes int) context.Context {
	return context.WithValue(ctx, key{}, bytes)
}

// Of returns the limit of ctx, or most if that is smaller or ctx has none.
func Of(ctx context.Context, most int) int {
	if n, ok := ctx.Value(key{}).(int); ok {
		return min(max(n, 0), most)
	}
	return most
}
