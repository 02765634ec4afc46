package dra

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// The fields of drivers' answers are counted before decoding: a short message can
// have many empty fields, each of which costs memory when it is decoded.

// shapes are the answers of drivers that have nested messages. Entries of maps are
// messages of a key and a value.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"NodePrepareResourcesResponse":   {1: {2: {1: {}}}},
	"NodeUnprepareResourcesResponse": {1: {2: {}}},
	"NodeWatchResourcesResponse":     {1: {1: {}}},
}

// codec decodes answers of drivers with at most maxFields fields. Others fail the
// call.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
