package csi

import (
	"fmt"
	"math"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// A driver's answer to NodeGetInfo. It becomes part of API objects. If it is not valid there, the
// registration fails, and the driver gets the error.

// Limits for the answer. A node ID may have 256 bytes in the CSI specification, and the segments
// of a topology become labels of the node.
const (
	maxNodeID   = 256
	maxSegments = 64
)

// nodeInfo is the driver's description of this node.
type nodeInfo struct {
	id       string
	topology map[string]string
	// limit is the maximum number of attached volumes. It is 0 if the driver sets none.
	limit    int32
	negative bool // the driver's limit is negative, and ignored
}

// infoOf validates an answer. As in the kubelet, a negative limit is ignored; every other mistake
// is an error.
func infoOf(resp *spec.NodeGetInfoResponse) (nodeInfo, error) {
	n := nodeInfo{id: resp.GetNodeId()}
	if n.id == "" || len(n.id) > maxNodeID {
		return n, fmt.Errorf("node_id has %d bytes; want 1 to %d", len(n.id), maxNodeID)
	}
	switch limit := resp.GetMaxVolumesPerNode(); {
	case limit < 0:
		n.negative = true
	default:
		// The field of the CSINode has 32 bits, the field of the answer 64.
		n.limit = int32(min(limit, math.MaxInt32)) //nolint:gosec // limited to 32 bits
	}
	t := resp.GetAccessibleTopology()
	if t == nil {
		return n, nil
	}
	if len(t.GetSegments()) > maxSegments {
		return n, fmt.Errorf("accessible_topology has %d segments; want at most %d", len(t.GetSegments()), maxSegments)
	}
	n.topology = make(map[string]string, len(t.GetSegments()))
	for k, v := range t.GetSegments() {
		if errs := validation.IsQualifiedName(k); len(errs) > 0 {
			return n, fmt.Errorf("accessible_topology has the key %.64q, which no label may have: %s", k, errs[0])
		}
		if errs := validation.IsValidLabelValue(v); len(errs) > 0 {
			return n, fmt.Errorf("accessible_topology has the value %.64q of %s, which no label may have: %s", v, k, errs[0])
		}
		n.topology[k] = v
	}
	return n, nil
}

// driver returns the driver's entry for the node's objects. Its map is shared and read-only.
func (n nodeInfo) driver(name string) plugins.CSINodeDriver {
	return plugins.CSINodeDriver{Name: name, NodeID: n.id, Topology: n.topology, Limit: n.limit}
}
