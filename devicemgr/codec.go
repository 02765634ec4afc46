package devicemgr

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// shapes are those of the answers of plugins that have messages within.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"ListAndWatchResponse":        {1: device},
	"PreferredAllocationResponse": {1: {}},
	"AllocateResponse":            {1: {1: {}, 2: {}, 3: {}, 4: {}, 5: {}}},
}

// device has a topology, and that has nodes.
var device = wirecount.Shape{3: {1: {}}}

// codec decodes the answers of a plugin that have not too many fields.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
