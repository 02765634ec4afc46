package dra

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// Limits for drivers' answers, checked before decoding: a short message can have many empty
// fields, and each of them costs memory when it is decoded.

// shapes are the answers with nested messages. An entry of a map is a message of a key and a
// value.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"NodePrepareResourcesResponse":   {1: {2: {1: {}}}},
	"NodeUnprepareResourcesResponse": {1: {2: {}}},
	"NodeWatchResourcesResponse":     {1: {1: {}}},
}

// codec decodes drivers' answers. A call whose answer has more than maxFields fields fails.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
