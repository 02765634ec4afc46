package csi

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// An idle day with mounted volumes costs no call, on a node that stands alone and on
// one in a cluster. A driver that wants its limit asked for is called for that alone.
func TestNoCallsAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		cluster plugins.StorageCluster
		want    int
	}{
		"alone": {}, "cluster": {cluster: object(nil)},
		"limit": {cluster: object(func(d *plugins.CSIDriver) { d.UpdatePeriod = time.Hour }), want: 23},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire := bufconn.Listen(1 << 16)
				n := newNode(t, c.cluster, func(c *csitest.Config) {
					stages(c)
					c.Listen = func() (net.Listener, error) { return wire, nil }
				})
				n.cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return wire.DialContext(ctx) }
				n.listen()
				l := n.begin(t, nil)
				for i := range 3 {
					if _, err := l.volumes.Mount(t.Context(), l.wants(fmt.Sprint("u", i))); err != nil {
						t.Fatal(err)
					}
				}
				n.driver.Forget()
				time.Sleep(24 * time.Hour)
				if calls := n.driver.Calls(); len(calls) != c.want || c.want != n.driver.Count("NodeGetInfo") {
					t.Errorf("%d calls in a day, want %d: %v", len(calls), c.want, calls[:min(len(calls), 10)])
				}
				l.stop()
				n.driver.Stop()
			})
		})
	}
}
