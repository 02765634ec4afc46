package network_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

// running is a Network with so many attachments.
func running(tb testing.TB, attachments int) *network.Network {
	tb.Helper()
	n, err := network.New(network.Config{
		Plugins: []network.Plugin{&networktest.Plugin{}}, StateDir: tb.TempDir(), NetnsDir: "/netns", Namespaces: &networktest.Namespaces{},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	for i := range attachments {
		if _, err := n.Attach(ctx, pod(fmt.Sprint("p", i))); err != nil {
			tb.Fatal(err)
		}
	}
	return n
}

func TestAskingAllocatesNothing(t *testing.T) {
	n := running(t, 3)
	if a := testing.AllocsPerRun(100, func() { _, _ = n.Get("p1"); _ = n.Status() }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

// IDs that look like files of the store's own, or of somebody else.
func TestOddIDs(t *testing.T) {
	inRig(t, func(c *network.Config) { c.Plugins[0].(*networktest.Plugin).Lasting = true }, func(t *testing.T, r *rig) {
		ids := []string{"a.tmp", "a.record", "a.progress", "a", "a.corrupt-1", "a.record.corrupt-2", "lock", "0"}
		for _, id := range ids {
			r.attach(id)
		}
		r.restart()
		for _, id := range ids {
			if _, ok := r.Get(id); !ok {
				t.Errorf("%s is not attached", id)
			}
			r.detach(id)
		}
		synctest.Wait()
		r.clean()
	})
}
