package localcri

import (
	"context"
	"errors"
)

// RunWith runs the runtime together with a function that needs the runtime, such as the Run of an
// agent. The runtime starts before the function is called, and ends after the function has
// returned. The context of the function ends with ctx, or if the runtime fails. RunWith returns the
// errors of the runtime and of the function. Containers keep running.
func (r *InProcess) RunWith(ctx context.Context, run func(context.Context) error) error {
	ctx, endUser := context.WithCancel(ctx)
	defer endUser()
	running, endRuntime := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		defer endUser()
		ended <- r.Run(running)
	}()
	err := run(ctx)
	endRuntime()
	return errors.Join(err, <-ended)
}
