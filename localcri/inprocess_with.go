package localcri

import (
	"context"
	"errors"
)

// RunWith runs the runtime together with a function that needs it, such as the Run of an agent.
// The runtime starts before run, and ends after run has returned. The context of run ends with
// ctx, or if the runtime fails. RunWith returns the errors of the runtime and of run. Containers
// keep running.
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
