// Package outputlimit passes a limit for a command's output in a context to a container
// runtime of the same process. The runtime then stores no more output than the caller
// uses. The CRI has no field for such a limit.
package outputlimit

import "context"

type key struct{}

// With returns a context with a limit: the caller uses at most this number of bytes of
// each output stream of a command.
func With(ctx context.Context, bytes int) context.Context {
	return context.WithValue(ctx, key{}, bytes)
}

// Of returns the limit in ctx, but at most maximum. If ctx has no limit, it returns maximum.
func Of(ctx context.Context, maximum int) int {
	if n, ok := ctx.Value(key{}).(int); ok {
		return min(max(n, 0), maximum)
	}
	return maximum
}
