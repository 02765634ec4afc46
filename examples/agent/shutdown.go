package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node/shutdown"
)

// endsWithMachine has SIGTERM mean that the machine goes down: the agent ends
// when its pods have. Ctrl-C still ends the agent alone. The context takes the
// place of ctx, which the signal ends; stop gives the signals back.
func endsWithMachine(ctx context.Context) (alive context.Context, machine shutdown.Machine, stop func()) {
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	term, quit := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	signal.Notify(quit, os.Interrupt)
	go func() {
		select {
		case <-quit:
			cancel()
		case <-alive.Done():
		}
	}()
	return alive, shutdown.OnSignal(term, cancel), func() {
		signal.Stop(term)
		signal.Stop(quit)
		cancel()
	}
}

// shutdownFlagAlone reports that SIGTERM was to end pods, and no time is given.
func shutdownFlagAlone(c *kubeletconfig.Config, f *runFlags) error {
	if f.shutdownOnTerm && c.ShutdownTime() == 0 {
		return errors.New("--shutdown-on-sigterm=true: want shutdownGracePeriod or shutdownGracePeriodByPodPriority in --config")
	}
	return nil
}
