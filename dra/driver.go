package dra

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The contract between the manager and whoever prepares devices. It is the DRA plugin
// API without gRPC: a driver within this process implements it directly, and remote
// does for programs behind a socket.

// Driver prepares the claims of one driver name. Programs that register through
// a socket become one; [Manager.Offer] takes those within this process. Calls
// may overlap, though never for the same claim, and must end when their ctx does.
type Driver interface {
	// Prepare makes the devices of claims ready. It is called again for claims that
	// were prepared already, as after a crash, and must succeed then, too. The answer
	// has every claim by UID; a claim that is missing counts as failed, and one that
	// was not asked for fails the whole call. An error is that of all claims. One
	// that wraps [ErrAway] has their pods reported by Subscribe when the driver is
	// back.
	Prepare(ctx context.Context, claims []ClaimRef) (map[types.UID]Prepared, error)
	// Unprepare undoes Prepare, also for claims that never were prepared, or whose
	// Prepare failed. The answer has every claim by UID; nil means that it is done.
	// An error keeps the claim and its record, and the call is made again later.
	Unprepare(ctx context.Context, claims []ClaimRef) (map[types.UID]error, error)
	// Watch calls report with the health of all devices, now and at each change,
	// until ctx ends or the driver goes away. Drivers that do not know return
	// [ErrNoHealth]; after any other end Watch is called again, 5 seconds later.
	// report does not wait for anything but a lock, and may be called from one
	// goroutine at a time.
	Watch(ctx context.Context, report func([]DeviceHealth)) error
	// Close is the last call. No other is under way by then.
	Close() error
}

// ClaimRef names a claim to a driver. The UID distinguishes a claim from an older one
// of the same name; a driver looks up the rest of the claim by itself.
type ClaimRef struct {
	Namespace, Name string
	UID             types.UID
}

// Prepared is what came of one claim.
type Prepared struct {
	Devices []Device
	Err     error // if not nil, Devices do not count
}

// Device is one device of a claim. It is shared and read-only.
type Device struct {
	Pool string `json:"pool,omitempty"`
	Name string `json:"name,omitempty"`
	// Requests of the claim that it is for; none means all of them.
	Requests []string `json:"requests,omitempty"`
	// CDI are fully qualified names (vendor/class=device, as in the Container Device
	// Interface specification); a device can have several, or none.
	CDI []string `json:"cdi,omitempty"`
	// Share distinguishes several shares of one device; "" for a device that is not
	// shared. Version v1beta1 of the API has no such field.
	Share string `json:"share,omitempty"`
}

// DeviceHealth is how one device is.
type DeviceHealth struct {
	Pool, Device string
	Health       Health
	// Timeout is for how long this counts if the driver says no more; 0 or
	// less means 30s (KEP-4680).
	Timeout time.Duration
	Message string // for a person; cut off at 1024 bytes
}

// Health is what a driver knows of a device. Values that the DRA health API may add
// later are Unknown.
type Health int

// As the DRA health API has them.
const (
	Unknown Health = iota
	Healthy
	Unhealthy
)
