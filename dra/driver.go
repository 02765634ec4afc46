package dra

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The interface between the manager and drivers: the DRA plugin API without gRPC. A driver of
// this process implements it directly; remote implements it for programs behind a socket.

// Driver prepares the claims for one driver name. The manager wraps a program behind a socket as
// a Driver; [Manager.Offer] adds one of this process. Calls may overlap, but never for the same
// claim, and must return when their ctx ends.
type Driver interface {
	// Prepare prepares the devices of claims. It may be called again for prepared claims, for
	// example after a crash, and must succeed then too. The answer must have every claim, by UID:
	// a missing claim counts as failed, and a claim that was not requested fails the whole call.
	// If err is not nil, it is the error of all claims. If it wraps [ErrAway], Subscribe reports
	// the claims' pods when the driver is back.
	Prepare(ctx context.Context, claims []ClaimRef) (map[types.UID]Prepared, error)
	// Unprepare undoes Prepare, even for claims that were never prepared or whose Prepare failed.
	// The answer must have every claim, by UID. A nil error means success. After an error the
	// claim and its record are kept, and the call is repeated later.
	Unprepare(ctx context.Context, claims []ClaimRef) (map[types.UID]error, error)
	// Watch calls report with the health of all devices, first at once and then at each change,
	// until ctx ends or the driver disconnects. A driver without health returns [ErrNoHealth].
	// After any other return, Watch is called again 5 seconds later. report only waits for a
	// lock, and must not be called concurrently.
	Watch(ctx context.Context, report func([]DeviceHealth)) error
	// Close is the last call. No other call is running then.
	Close() error
}

// ClaimRef identifies a claim to a driver, which reads the claim itself. The UID distinguishes
// claims with the same name.
type ClaimRef struct {
	Namespace, Name string
	UID             types.UID
}

// Prepared is the result of Prepare for one claim.
type Prepared struct {
	Devices []Device
	Err     error // if not nil, Devices is ignored
}

// Device is one device of a claim. It is shared and read-only.
type Device struct {
	Pool string `json:"pool,omitempty"`
	Name string `json:"name,omitempty"`
	// Requests are the requests of the claim that the device is for. If there are none, the
	// device is for all requests.
	Requests []string `json:"requests,omitempty"`
	// CDI are fully qualified names (vendor/class=device, as in the Container Device Interface
	// specification). A device may have several, or none.
	CDI []string `json:"cdi,omitempty"`
	// Share distinguishes the shares of a shared device. It is "" for a device that is not
	// shared. Version v1beta1 of the API has no such field.
	Share string `json:"share,omitempty"`
}

// DeviceHealth is a report of a driver about one device, and how long the report is valid.
type DeviceHealth struct {
	Pool, Device string
	Health       Health
	// Timeout is how long a report is valid. If it is 0 or negative, the report is valid for 30 s
	// (KEP-4680).
	Timeout time.Duration
	Message string // for people; cut to 1024 bytes
}

// Health is the health of a device. Values that the DRA health API may add later
// become Unknown.
type Health int

// The values of the DRA health API.
const (
	Unknown Health = iota
	Healthy
	Unhealthy
)
