package csi

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// Limits for drivers' answers, which are checked before decoding: a short message can have many
// empty fields, and each of them costs memory when it is decoded.

// Limits of a driver's answers.
const (
	// maxMessage limits the bytes of an answer. maxHeader limits the bytes of its headers, which
	// contain errors.
	maxMessage = 256 << 10
	maxHeader  = 64 << 10
	// maxFields limits the fields of an answer, including those of nested messages.
	maxFields = 4096
)

// shapes are the answers with nested messages. An entry of a map is a message of a key and a
// value.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"NodeGetCapabilitiesResponse":       {1: {1: {}}},
	"NodeGetInfoResponse":               {3: {1: {}}},
	"NodeGetVolumeStatsResponse":        {1: {}, 2: {}},
	"GetPluginCapabilitiesResponse":     {1: {1: {}, 2: {}}},
	"ControllerGetCapabilitiesResponse": {1: {1: {}}},
}

// codec decodes drivers' answers. A call whose answer has more than maxFields fields fails.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
