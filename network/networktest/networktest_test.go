package networktest_test

import (
	"fmt"
	"testing"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

func TestPluginConforms(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		t.Run(fmt.Sprint("durable ", lasting), func(t *testing.T) {
			p := &networktest.Plugin{Lasting: lasting} // of the machine
			networktest.Conform(t, networktest.Subject{
				New:   func(*testing.T) network.Plugin { return p },
				State: func(*testing.T) string { return fmt.Sprint(p.Given()) },
			})
			if err := p.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
