package pressure_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/node/oom"
)

// printer is the little of an agent that this example needs.
type printer struct{ part.Host }

func (printer) NodeEvent(eventType, reason, message string) {
	fmt.Println(eventType, reason, message)
}

// one is a source of a single kill.
type one struct {
	kill oom.Kill
	done func()
}

func (o one) Watch(_ context.Context, on func(oom.Kill)) error {
	on(o.kill)
	o.done()
	return nil
}

// A node that ran out of memory has an event.
func Example_oomKill() {
	ctx, cancel := context.WithCancel(context.Background())
	p, err := pressure.NewOOMKills(pressure.OOMKillsConfig{
		Open:     func(bool) (oom.Log, error) { return nil, errors.New("no kernel log here") },
		Fallback: one{oom.Kill{Node: true, Process: "java", PID: 4321, Count: 1}, cancel},
	})
	if err == nil {
		err = p.Join(printer{}) // agent.New does it
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = p.Run(ctx) // and agent.Run
	// Output: Warning SystemOOM System OOM encountered, victim process: java, pid: 4321
}
