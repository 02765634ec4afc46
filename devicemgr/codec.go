package devicemgr

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// shapes are the shapes of those answers of plugins that have nested messages. The messages are
// counted before anything is decoded, since an empty message takes two bytes on the wire and a
// hundred in memory. The numbers are field numbers of the device plugin API's api.proto.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"ListAndWatchResponse":        {1: device},
	"PreferredAllocationResponse": {1: {}},
	"AllocateResponse":            {1: {1: {}, 2: {}, 3: {}, 4: {}, 5: {}}},
}

// device describes a device: its field 3 is a topology, whose field 1 has the nodes.
var device = wirecount.Shape{3: {1: {}}}

// codec decodes plugins' answers, for all calls. A call whose answer has more than maxFields
// fields fails.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
