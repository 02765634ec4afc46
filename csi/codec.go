package csi

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// Answers of drivers are bounded before they are decoded: a message of few bytes can
// have many empty fields, each of which costs memory once it is decoded.

// Limits of what a driver may say.
const (
	// maxMessage is how many bytes an answer may have, maxHeader those of its
	// headers, in which errors are.
	maxMessage = 256 << 10
	maxHeader  = 64 << 10
	// maxFields is how many fields an answer may have, those of messages within
	// it counted.
	maxFields = 4096
)

// shapes are those of the answers that have messages within. Those of maps are
// messages of a key and a value.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"NodeGetCapabilitiesResponse":       {1: {1: {}}},
	"NodeGetInfoResponse":               {3: {1: {}}},
	"NodeGetVolumeStatsResponse":        {1: {}, 2: {}},
	"GetPluginCapabilitiesResponse":     {1: {1: {}, 2: {}}},
	"ControllerGetCapabilitiesResponse": {1: {1: {}}},
}

// codec decodes the answers of a driver that have not too many fields. Others fail
// the call.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
