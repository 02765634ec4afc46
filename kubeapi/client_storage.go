package kubeapi

import "k8s.io/apimachinery/pkg/runtime/schema"

// storageGroup is where drivers and their volumes are.
var storageGroup = schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}

type (
	// CSIDriver describes what a driver wants of nodes.
	CSIDriver = Object[CSIDriverSpec, struct{}]
	// CSIDriverList lists them.
	CSIDriverList = List[CSIDriverSpec, struct{}]
)

// CSIDriverSpec has the fields that nodes read; see the API for what they mean.
type CSIDriverSpec struct {
	AttachRequired                     *bool             `json:"attachRequired,omitempty"`
	PodInfoOnMount                     *bool             `json:"podInfoOnMount,omitempty"`
	VolumeLifecycleModes               []string          `json:"volumeLifecycleModes,omitempty"`
	FSGroupPolicy                      *string           `json:"fsGroupPolicy,omitempty"`
	TokenRequests                      []CSITokenRequest `json:"tokenRequests,omitempty"`
	RequiresRepublish                  *bool             `json:"requiresRepublish,omitempty"`
	SELinuxMount                       *bool             `json:"seLinuxMount,omitempty"`
	NodeAllocatableUpdatePeriodSeconds *int64            `json:"nodeAllocatableUpdatePeriodSeconds,omitempty"`
	ServiceAccountTokenInSecrets       *bool             `json:"serviceAccountTokenInSecrets,omitempty"`
}

// CSITokenRequest is a token that a driver wants of each pod.
type CSITokenRequest struct {
	Audience          string `json:"audience"`
	ExpirationSeconds *int64 `json:"expirationSeconds,omitempty"`
}

type (
	// CSINode describes which drivers a node has.
	CSINode = Object[CSINodeSpec, struct{}]
	// CSINodeList lists them.
	CSINodeList = List[CSINodeSpec, struct{}]
)

// CSINodeSpec lists the drivers of a node.
type CSINodeSpec struct {
	Drivers []CSINodeDriver `json:"drivers" patchStrategy:"merge" patchMergeKey:"name"`
}

// CSINodeDriver is a driver of a node.
type CSINodeDriver struct {
	Name         string                `json:"name"`
	NodeID       string                `json:"nodeID"`
	TopologyKeys []string              `json:"topologyKeys,omitempty"`
	Allocatable  *CSINodeDriverVolumes `json:"allocatable,omitempty"`
}

// CSINodeDriverVolumes describes how many volumes a node can have.
type CSINodeDriverVolumes struct {
	Count *int32 `json:"count,omitempty"`
}

type (
	// VolumeAttachment reports whether a volume is attached to a node.
	VolumeAttachment = Object[VolumeAttachmentSpec, VolumeAttachmentStatus]
	// VolumeAttachmentList lists them.
	VolumeAttachmentList = List[VolumeAttachmentSpec, VolumeAttachmentStatus]
)

// VolumeAttachmentSpec describes what is to be attached, and by whom.
type VolumeAttachmentSpec struct {
	Attacher string `json:"attacher"`
	NodeName string `json:"nodeName"`
}

// VolumeAttachmentStatus defines what came of it.
type VolumeAttachmentStatus struct {
	Attached           bool               `json:"attached"`
	AttachmentMetadata map[string]string  `json:"attachmentMetadata,omitempty"`
	AttachError        *VolumeAttachError `json:"attachError,omitempty"`
}

// VolumeAttachError is why a volume is not attached. ErrorCode is one of gRPC.
type VolumeAttachError struct {
	Message   string `json:"message,omitempty"`
	ErrorCode *int32 `json:"errorCode,omitempty"`
}
