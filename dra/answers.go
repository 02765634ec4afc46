package dra

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// answers limits the answers of drivers, in bytes (gRPC's default) and fields.
var answers = pluginconn.Limits{Bytes: 4 << 20, Fields: 1 << 18, Shapes: map[protoreflect.Name]wirecount.Shape{
	"NodePrepareResourcesResponse":   {1: {2: {1: {}}}},
	"NodeUnprepareResourcesResponse": {1: {2: {}}},
	"NodeWatchResourcesResponse":     {1: {1: {}}},
}}
