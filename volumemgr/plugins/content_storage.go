package plugins

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ErrExhausted means that a volume cannot be attached as the node has no room for
// another one: the attacher answered ResourceExhausted.
var ErrExhausted = errors.New("the node has no room for another volume of the driver")

// FSGroupPolicy describes when the files of a volume are given to a pod's fsGroup.
type FSGroupPolicy string

// The policies of CSIDriver.spec.fsGroupPolicy.
const (
	FSGroupByType FSGroupPolicy = "ReadWriteOnceWithFSType"
	FSGroupFile   FSGroupPolicy = "File"
	FSGroupNone   FSGroupPolicy = "None"
)

// CSIDriver is what a CSIDriver object says.
type CSIDriver struct {
	Name string
	// AttachRequired means that a controller attaches volumes to nodes first.
	AttachRequired bool
	// PodInfoOnMount has the driver told whose volume it publishes.
	PodInfoOnMount bool
	// Persistent and Ephemeral are the kinds of volumes that it makes.
	Persistent, Ephemeral bool
	FSGroupPolicy         FSGroupPolicy
	TokenRequests         []TokenRequest
	// TokensInSecrets has tokens travel among the secrets, and not in the volume's
	// context (serviceAccountTokenInSecrets).
	TokensInSecrets bool
	// RequiresRepublish has volumes published again and again while pods run.
	RequiresRepublish bool
	// SELinuxMount means that volumes can be mounted with a context.
	SELinuxMount bool
	// UpdatePeriod is how often the node's room for volumes is asked for; 0: never.
	UpdatePeriod time.Duration
}

// TokenRequest is a token that a driver wants of each pod.
type TokenRequest struct {
	Audience          string // "": the API server's own
	ExpirationSeconds *int64
}

// CSINodeDriver is what a driver says of this node, as CSINode shows it.
type CSINodeDriver struct {
	Name, NodeID string
	// Topology are labels of the node; nil: the driver has no topology.
	Topology map[string]string
	// Limit is how many volumes can be on the node; 0: not known.
	Limit int32
}

// CSIDrivers knows the CSIDriver objects.
type CSIDrivers interface {
	// CSIDriver returns ErrNotFound if there is none of that name. It may wait for
	// its source's first answer until ctx ends; any other error means that it
	// is not known.
	Driver(ctx context.Context, name string) (CSIDriver, error)
}

// CSINodes shows on the Node and the CSINode object which drivers the node has.
type CSINodes interface {
	// Apply makes the objects show the drivers installed, and no longer those
	// removed; all others stay. It may be called again after an error and after
	// success. Labels of topology that are there with another value are an
	// error, and labels are never removed.
	Apply(ctx context.Context, installed []CSINodeDriver, removed []string) error
}

// Attachments knows what a controller attaches to this node.
type Attachments interface {
	// Wait waits until a volume is attached, and returns what its attacher has to
	// say to the node. It begins when the API server has seen that the node is
	// about to use the volume: from then on no controller takes it away. The
	// error is an ErrExhausted if the node has as many as it can. Note is
	// told what is waited for, and must not block.
	Wait(ctx context.Context, a Attachment, note func(string)) (map[string]string, error)
}

// Attachment names one volume on this node.
type Attachment struct {
	// Name is that of the VolumeAttachment object.
	Name string
	// Volume is how the node's status names it.
	Volume v1.UniqueVolumeName
}

// StorageCluster is all of that.
type StorageCluster interface {
	CSIDrivers
	CSINodes
	Attachments
}
