package dra

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// Answers of drivers are decoded only after their fields have been counted: a message
// of few bytes can have many empty fields, each of which costs memory once it is
// decoded.

// shapes are those of the answers of drivers that have messages within. Those of
// maps are messages of a key and a value.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"NodePrepareResourcesResponse":   {1: {2: {1: {}}}},
	"NodeUnprepareResourcesResponse": {1: {2: {}}},
	"NodeWatchResourcesResponse":     {1: {1: {}}},
}

// codec decodes the answers of a driver that have not too many fields. Others fail
// the call.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
