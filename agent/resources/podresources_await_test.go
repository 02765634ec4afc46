package resources

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/agent/agenttest"
)

// Calls are answered when every source has spoken, or after a minute.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct{ settled, want time.Duration }{
		"every source has spoken": {30 * time.Second, 30 * time.Second},
		"one is silent":           {time.Hour, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := NewPodResources(PodResourcesConfig{Socket: "/s"})
				if err != nil {
					t.Fatal(err)
				}
				h := agenttest.NewHost(t)
				if err := p.Join(h); err != nil {
					t.Fatal(err)
				}
				settle := time.AfterFunc(c.settled, h.Settle)
				defer settle.Stop()
				begin := time.Now()
				go p.await(t.Context())
				<-p.ready
				if took := time.Since(begin); took != c.want {
					t.Errorf("ready after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// Who waits when the agent ends is not answered as if there were no pods.
func TestAwaitGivesUp(t *testing.T) {
	p, err := NewPodResources(PodResourcesConfig{Socket: "/s"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.await(ctx)
	select {
	case <-p.ready:
		t.Error("ready")
	default:
	}
}
