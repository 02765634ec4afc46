package part_test

import (
	"testing"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
)

// A part that is given to a second agent keeps the host of the first.
func TestSetHost(t *testing.T) {
	var host part.Host
	first, second := agenttest.NewHost(t), agenttest.NewHost(t)
	if err := part.SetHost[part.Host](&host, first); err != nil || host != first {
		t.Errorf("host %v, error %v", host, err)
	}
	if err := part.SetHost[part.Host](&host, second); err == nil || host != first {
		t.Errorf("host %v, error %v", host, err)
	}
}
