package plugins

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ErrExhausted means that a volume cannot be attached because the node has reached
// its limit: the attacher returned ResourceExhausted.
var ErrExhausted = errors.New("the node has no room for another volume of the driver")

// FSGroupPolicy says when the files of a volume are changed to a pod's fsGroup.
type FSGroupPolicy string

// The policies of CSIDriver.spec.fsGroupPolicy.
const (
	FSGroupByType FSGroupPolicy = "ReadWriteOnceWithFSType"
	FSGroupFile   FSGroupPolicy = "File"
	FSGroupNone   FSGroupPolicy = "None"
)

// CSIDriver is the content of a CSIDriver object.
type CSIDriver struct {
	Name string
	// AttachRequired means that a controller has to attach volumes first.
	AttachRequired bool
	// PodInfoOnMount passes the pod's name to the driver when a volume is
	// published.
	PodInfoOnMount bool
	// Persistent and Ephemeral are the kinds of volumes that the driver supports.
	Persistent, Ephemeral bool
	FSGroupPolicy         FSGroupPolicy
	TokenRequests         []TokenRequest
	// TokensInSecrets passes tokens in the secrets, and not in the volume's context
	// (serviceAccountTokenInSecrets).
	TokensInSecrets bool
	// RequiresRepublish publishes volumes again regularly while pods run.
	RequiresRepublish bool
	// SELinuxMount means that the driver supports mounts with an SELinux context.
	SELinuxMount bool
	// UpdatePeriod is the interval at which the node's volume limit is read; 0 means never.
	UpdatePeriod time.Duration
}

// TokenRequest is a token that a driver requires for each pod.
type TokenRequest struct {
	Audience          string // "": the API server's own audience
	ExpirationSeconds *int64
}

// CSINodeDriver is a driver's entry in the CSINode object.
type CSINodeDriver struct {
	Name, NodeID string
	// Topology are labels of the node; nil: the driver has no topology.
	Topology map[string]string
	// Limit is the largest number of volumes on the node; 0: not known.
	Limit int32
}

// CSIDrivers reads CSIDriver objects.
type CSIDrivers interface {
	// Driver returns ErrNotFound if the object does not exist. It may wait for its
	// source's first answer until ctx ends; any other error means that the object
	// is not known.
	Driver(ctx context.Context, name string) (CSIDriver, error)
}

// CSINodes writes the drivers of the node to the Node and the CSINode object.
type CSINodes interface {
	// Apply adds the drivers installed to the objects, and removes those in
	// removed; others are kept. It may be called again after an error and after a
	// success. A topology label that exists with another value is an error. Labels
	// are never removed.
	Apply(ctx context.Context, installed []CSINodeDriver, removed []string) error
}

// Attachments reads the attachments of volumes to this node.
type Attachments interface {
	// Wait waits until a volume is attached, and returns the publish context of the
	// attachment. It first waits until the API server has the volume in the node's
	// status.volumesInUse: from then on no controller detaches it. The error is an
	// ErrExhausted if the node has reached its limit. note is called with a text
	// about the current wait, and must not block.
	Wait(ctx context.Context, a Attachment, note func(string)) (map[string]string, error)
}

// Attachment names one volume on this node.
type Attachment struct {
	// Name is the name of the VolumeAttachment object.
	Name string
	// Volume is the volume's name in the node's status.
	Volume v1.UniqueVolumeName
}

// StorageCluster is the interface of a cluster's storage objects.
type StorageCluster interface {
	CSIDrivers
	CSINodes
	Attachments
}
