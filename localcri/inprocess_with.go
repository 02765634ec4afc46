package localcri

import (
	"context"
	"errors"
)

// RunWith runs the runtime and, beside it, what needs it, such as the Run of an agent. The
// runtime begins before run and ends after run has returned. run's context ends with ctx, and
// when the runtime fails. RunWith returns the errors of both; containers keep running.
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
