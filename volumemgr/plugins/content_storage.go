package plugins

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ErrExhausted means that a volume cannot be attached because the node has reached its limit of
// volumes: the attacher returned ResourceExhausted.
var ErrExhausted = errors.New("the node has reached the volume limit of the driver")

// FSGroupPolicy says when the files of a volume are changed to the pod's fsGroup.
type FSGroupPolicy string

// The policies of CSIDriver.spec.fsGroupPolicy.
const (
	FSGroupByType FSGroupPolicy = "ReadWriteOnceWithFSType"
	FSGroupFile   FSGroupPolicy = "File"
	FSGroupNone   FSGroupPolicy = "None"
)

// CSIDriver has the settings of a CSIDriver object.
type CSIDriver struct {
	Name string
	// AttachRequired means that a controller has to attach a volume before it is mounted.
	AttachRequired bool
	// PodInfoOnMount passes the pod's name to the driver when a volume is
	// published.
	PodInfoOnMount bool
	// Persistent and Ephemeral are the kinds of volumes that the driver supports.
	Persistent, Ephemeral bool
	FSGroupPolicy         FSGroupPolicy
	TokenRequests         []TokenRequest
	// TokensInSecrets passes tokens in the secrets instead of the volume context
	// (serviceAccountTokenInSecrets).
	TokensInSecrets bool
	// RequiresRepublish publishes volumes again at intervals while pods run.
	RequiresRepublish bool
	// SELinuxMount means that the driver supports mounts with an SELinux context.
	SELinuxMount bool
	// UpdatePeriod is the interval at which the node's volume limit is read again. If it is 0,
	// the limit is read only once.
	UpdatePeriod time.Duration
}

// TokenRequest is a token that a driver requires for each pod.
type TokenRequest struct {
	Audience          string // "" is the API server's own audience
	ExpirationSeconds *int64
}

// CSINodeDriver is a driver's entry in the CSINode object.
type CSINodeDriver struct {
	Name, NodeID string
	// Topology has the topology labels of the node. It is nil if the driver has no topology.
	Topology map[string]string
	// Limit is the maximum number of the driver's volumes on the node. It is 0 if the number is
	// not known.
	Limit int32
}

// CSIDrivers reads CSIDriver objects.
type CSIDrivers interface {
	// Driver returns a driver's settings, or ErrNotFound if it has no object. It may wait until
	// ctx ends for the source's first answer. After any other error, the settings are unknown.
	Driver(ctx context.Context, name string) (CSIDriver, error)
}

// CSINodes writes the drivers of the node to its Node and CSINode objects.
type CSINodes interface {
	// Apply adds the installed drivers to the objects and removes the drivers whose names are in
	// removed. Other drivers are kept. It may be called again after an error and after a success. If
	// a topology label exists with another value, Apply returns an error. It never removes labels.
	Apply(ctx context.Context, installed []CSINodeDriver, removed []string) error
}

// Attachments waits for the attachment of volumes to this node.
type Attachments interface {
	// Wait waits until a volume is attached, and returns the publish context of the attachment.
	// It first waits until the node's status.volumesInUse on the API server contains the volume:
	// from then on, no controller detaches it. The error is an ErrExhausted if the node has
	// reached its limit. note is called with a description of the current wait, and must not
	// block.
	Wait(ctx context.Context, a Attachment, note func(string)) (map[string]string, error)
}

// Attachment identifies one volume on this node.
type Attachment struct {
	// Name is the name of the VolumeAttachment object.
	Name string
	// Volume is the volume's name in the node's status.
	Volume v1.UniqueVolumeName
}

// StorageCluster gives access to a cluster's storage objects.
type StorageCluster interface {
	CSIDrivers
	CSINodes
	Attachments
}
