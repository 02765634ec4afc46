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

// endsWithMachine makes SIGTERM shut down the machine's pods: the agent exits after its pods have
// ended. Ctrl-C still stops only the agent. The agent has to use alive instead of ctx, since SIGTERM
// ends ctx. stop restores the signals.
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

// shutdownFlagAlone returns an error if --shutdown-on-sigterm is set and the configuration has no
// shutdown grace period.
func shutdownFlagAlone(c *kubeletconfig.Config, f *runFlags) error {
	if f.shutdownOnTerm && c.ShutdownTime() == 0 {
		return errors.New("--shutdown-on-sigterm=true: want shutdownGracePeriod or shutdownGracePeriodByPodPriority in --config")
	}
	return nil
}
