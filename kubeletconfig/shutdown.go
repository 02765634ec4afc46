package kubeletconfig

import (
	"fmt"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/node/shutdown"
)

// Shutdown returns the configuration of a graceful node shutdown. Either Requested and Critical are
// set, or Groups. If neither is configured, the node does not delay a shutdown, and ShutdownTime
// returns 0.
func (c *Config) Shutdown() shutdown.Config {
	s := shutdown.Config{Requested: c.ShutdownGracePeriod.Duration, Critical: c.ShutdownGracePeriodCriticalPods.Duration}
	for _, g := range c.ShutdownGracePeriodByPodPriority {
		s.Groups = append(s.Groups, shutdown.Group{Priority: g.Priority, Time: seconds.Of(g.ShutdownGracePeriodSeconds)})
	}
	return s
}

// ShutdownTime returns the maximum duration of a graceful node shutdown.
func (c *Config) ShutdownTime() time.Duration {
	s := c.Shutdown()
	sum := s.Requested
	for _, g := range s.Groups {
		sum += g.Time
	}
	return sum
}

func validateShutdown(c *v1beta1.KubeletConfiguration, bad reporter) {
	all, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	for _, p := range []interval{{"shutdownGracePeriod", all}, {"shutdownGracePeriodCriticalPods", critical}} {
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
		bad("shutdownGracePeriodByPodPriority", c.ShutdownGracePeriodByPodPriority, "none if shutdownGracePeriod or shutdownGracePeriodCriticalPods is set")
	}
}
