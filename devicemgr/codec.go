package devicemgr

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// shapes are the answers of plugins that have nested messages. Their number is
// counted before anything is decoded: an empty message is two bytes on the wire and
// a hundred in memory. Numbers are field numbers of the device plugin API's
// api.proto.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"ListAndWatchResponse":        {1: device},
	"PreferredAllocationResponse": {1: {}},
	"AllocateResponse":            {1: {1: {}, 2: {}, 3: {}, 4: {}, 5: {}}},
}

// device has a topology, and that has nodes.
var device = wirecount.Shape{3: {1: {}}}

// codec decodes the answers of a plugin that have not too many fields. It is used
// for all calls to plugins; an answer with too many fields is an error of the call.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
