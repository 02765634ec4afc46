package dra

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Driver prepares the claims of one driver name. Programs that register through
// a socket become one; [Manager.Offer] takes those within this process. Calls
// may overlap, though never for the same claim, and must end when their ctx does.
type Driver interface {
	// Prepare makes the devices of claims ready. It is called again for claims
	// that were prepared already, as after a crash. The answer has every claim
	// by UID.
	Prepare(ctx context.Context, claims []ClaimRef) (map[types.UID]Prepared, error)
	// Unprepare undoes Prepare, also for claims that never were prepared. The
	// answer has every claim by UID; nil means that it is done.
	Unprepare(ctx context.Context, claims []ClaimRef) (map[types.UID]error, error)
	// Watch calls report with the health of all devices, now and at each
	// change, until ctx ends or the driver goes away. Drivers that do not know
	// return [ErrNoHealth].
	Watch(ctx context.Context, report func([]DeviceHealth)) error
	// Close is the last call.
	Close() error
}

// ClaimRef names a claim to a driver.
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
	// CDI are fully qualified names; a device can have several, or none.
	CDI []string `json:"cdi,omitempty"`
	// Share distinguishes several shares of one device.
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

// Health is what a driver knows of a device.
type Health int

// As the DRA health API has them.
const (
	Unknown Health = iota
	Healthy
	Unhealthy
)
