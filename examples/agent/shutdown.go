package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/node/shutdown/logind"
)

// validateShutdown tells what is wrong with the fields about shutdowns.
func validateShutdown(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) {
	all, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	for _, p := range []struct {
		field string
		d     time.Duration
	}{{"shutdownGracePeriod", all}, {"shutdownGracePeriodCriticalPods", critical}} {
		if p.d < 0 || p.d%time.Second != 0 {
			bad(p.field, p.d.String(), "whole seconds, or 0 for none")
		}
	}
	if critical > all {
		bad("shutdownGracePeriodCriticalPods", critical.String(), "at most shutdownGracePeriod, "+all.String())
	}
	seen := map[int32]bool{}
	for i, g := range c.ShutdownGracePeriodByPodPriority {
		field := fmt.Sprintf("shutdownGracePeriodByPodPriority[%d]", i)
		if g.ShutdownGracePeriodSeconds < 0 {
			bad(field+".shutdownGracePeriodSeconds", g.ShutdownGracePeriodSeconds, "0 or more")
		}
		if seen[g.Priority] {
			bad(field+".priority", g.Priority, "each priority once")
		}
		seen[g.Priority] = true
	}
	if len(seen) > 0 && (all != 0 || critical != 0) {
		bad("shutdownGracePeriodByPodPriority", c.ShutdownGracePeriodByPodPriority, "none beside shutdownGracePeriod or shutdownGracePeriodCriticalPods")
	}
}

// shutdownTime is what an orderly shutdown takes at most; 0 if there is none.
func shutdownTime(c *kubeletconfig.KubeletConfiguration) time.Duration {
	sum := c.ShutdownGracePeriod.Duration
	for _, g := range c.ShutdownGracePeriodByPodPriority {
		sum += time.Duration(g.ShutdownGracePeriodSeconds) * time.Second
	}
	return sum
}

// shutdownOf is what the configuration makes of shutdowns; nil if they are not
// handled. Without a machine of its own it is logind that tells.
func shutdownOf(c *kubeletconfig.KubeletConfiguration, machine shutdown.Machine, log *zap.Logger) *agent.Shutdown {
	if shutdownTime(c) == 0 {
		return nil
	}
	s := &agent.Shutdown{
		Requested: c.ShutdownGracePeriod.Duration, Critical: c.ShutdownGracePeriodCriticalPods.Duration, Machine: machine,
	}
	for _, g := range c.ShutdownGracePeriodByPodPriority {
		s.Groups = append(s.Groups, shutdown.Group{Priority: g.Priority, Time: time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
	}
	if machine == nil {
		s.Machine = logind.New(logind.Config{Log: log.Named("logind")})
		return s
	}
	s.Changed = func(down bool) {
		if down { // so that systemd, if it sent the signal, waits (sd_notify(3))
			notify(log, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (shutdownTime(c)+stopMargin).Microseconds()))
		}
	}
	return s
}

// stopMargin is what ending takes beyond the time of the pods.
const stopMargin = 15 * time.Second

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

// shutdownFlagAlone tells that SIGTERM was to end pods, and no time is given.
func shutdownFlagAlone(c *kubeletconfig.KubeletConfiguration, f *runFlags) error {
	if f.shutdownOnTerm && shutdownTime(c) == 0 {
		return errors.New("--shutdown-on-sigterm=true: want shutdownGracePeriod or shutdownGracePeriodByPodPriority in --config")
	}
	return nil
}
