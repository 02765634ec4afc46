package devicetest

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/dra"
)

// Driver is a DRA driver. It gives each claim a device of the claim's name in the pool n, with the
// CDI device v/c=NAME.
type Driver struct {
	calls

	// Health has the states of the device a to report.
	Health chan dra.Health

	fails atomic.Pointer[error]
}

// NewDriver returns a driver. In a test with virtual time it is made in the bubble.
func NewDriver() *Driver { return &Driver{Health: make(chan dra.Health)} }

// Fail sets the error of later calls; nil for none.
func (d *Driver) Fail(err error) { d.fails.Store(&err) }

func (d *Driver) call(what string, list []dra.ClaimRef) error {
	for _, c := range list {
		d.note(what + " " + c.Name)
	}
	if err := d.fails.Load(); err != nil {
		return *err
	}
	return nil
}

// Prepare implements dra.Driver.
func (d *Driver) Prepare(_ context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
	out := map[types.UID]dra.Prepared{}
	for _, c := range list {
		out[c.UID] = dra.Prepared{Devices: []dra.Device{{Pool: "n", Name: c.Name, CDI: []string{"v/c=" + c.Name}}}}
	}
	return out, d.call("prepare", list)
}

// Unprepare implements dra.Driver.
func (d *Driver) Unprepare(_ context.Context, list []dra.ClaimRef) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range list {
		out[c.UID] = nil
	}
	return out, d.call("unprepare", list)
}

// Watch implements dra.Driver.
func (d *Driver) Watch(ctx context.Context, report func([]dra.DeviceHealth)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-d.Health:
			report([]dra.DeviceHealth{{Pool: "n", Device: "a", Health: h, Timeout: time.Hour}})
		}
	}
}

// Close implements dra.Driver.
func (d *Driver) Close() error { return nil }
