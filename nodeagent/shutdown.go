package nodeagent

import (
	"fmt"
	"time"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/node/logind"
)

// Shutdown makes the part that terminates pods in order when the machine shuts
// down, if the configuration gives them time for that: see [lifecycle.Shutdown].
// Without Options.Machine logind reports shutdowns.
func Shutdown(b *Builder) (part.Part, error) {
	if b.Config.ShutdownTime() == 0 {
		return nil, nil //nolint:nilnil // a node without this part
	}
	p, err := lifecycle.NewShutdown(b.shutdown())
	if err != nil {
		return nil, err
	}
	b.Facts.ShuttingDown = p.ShuttingDown
	return p, nil
}

// shutdown converts the configuration. logind delays the shutdown until the pods have ended.
// With another Machine systemd may stop the agent by a signal, so systemd is asked for more
// time.
func (b *Builder) shutdown() lifecycle.ShutdownConfig {
	said := b.Config.Shutdown()
	cfg := lifecycle.ShutdownConfig{
		Requested: said.Requested, Critical: said.Critical, Groups: said.Groups, Machine: b.Machine,
		Changed: func(bool) { b.Facts.Changed() },
		Store:   b.Store("shutdown", "shutdown"), Log: b.Log.Named("shutdown"), Metrics: b.Metrics,
	}
	if h := b.Hardware; h != nil {
		cfg.BootID = h.Machine.BootID
	}
	if b.Machine == nil {
		cfg.Machine = logind.New(logind.Config{Log: b.Log.Named("logind")})
		return cfg
	}
	// TimeoutStopSec of the unit could kill the agent during its pods' grace periods.
	most := b.Config.ShutdownTime() + stopMargin
	cfg.Changed = func(down bool) {
		if down { // so that systemd, if it sent the signal, waits (sd_notify(3))
			notify(b.Log, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", most.Microseconds()))
		}
		b.Facts.Changed()
	}
	return cfg
}

// stopMargin is the time that the agent's end takes in addition to the pods' time.
const stopMargin = 15 * time.Second
