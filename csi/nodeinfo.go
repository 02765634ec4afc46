package csi

import (
	"fmt"
	"math"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// A driver's answer to NodeGetInfo. It becomes part of API objects: an answer that
// is not valid in them fails the registration, so that the driver gets the error.

// Limits of the answer: a node ID of the CSI specification has 256 bytes, and the
// segments of a topology become labels of the node.
const (
	maxNodeID   = 256
	maxSegments = 64
)

// nodeInfo is the driver's description of this node.
type nodeInfo struct {
	id       string
	topology map[string]string
	// limit is the largest number of attached volumes; 0: the driver does not say.
	limit    int32
	negative bool // the limit was, and is ignored
}

// infoOf checks an answer. A negative limit is noted and does not count, as with the
// kubelet; every other mistake is an error.
func infoOf(resp *spec.NodeGetInfoResponse) (nodeInfo, error) {
	n := nodeInfo{id: resp.GetNodeId()}
	if n.id == "" || len(n.id) > maxNodeID {
		return n, fmt.Errorf("node_id has %d bytes; want 1 to %d", len(n.id), maxNodeID)
	}
	switch limit := resp.GetMaxVolumesPerNode(); {
	case limit < 0:
		n.negative = true
	default:
		// The field of the CSINode has 32 bits, that of the answer 64.
		n.limit = int32(min(limit, math.MaxInt32)) //nolint:gosec // it was cut
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

// driver is the driver's entry for the node's objects. The map is shared and
// read-only.
func (n nodeInfo) driver(name string) plugins.CSINodeDriver {
	return plugins.CSINodeDriver{Name: name, NodeID: n.id, Topology: n.topology, Limit: n.limit}
}
