package csi

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecodec"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// The size of drivers' answers is checked before decoding: a short message can have
// many empty fields, each of which costs memory when it is decoded.

// Limits of a driver's answers.
const (
	// maxMessage limits the bytes of an answer, maxHeader those of its headers,
	// which contain errors.
	maxMessage = 256 << 10
	maxHeader  = 64 << 10
	// maxFields limits the fields of an answer, nested messages included.
	maxFields = 4096
)

// shapes are the answers that have nested messages. Entries of maps are messages of
// a key and a value.
var shapes = map[protoreflect.Name]wirecount.Shape{
	"NodeGetCapabilitiesResponse":       {1: {1: {}}},
	"NodeGetInfoResponse":               {3: {1: {}}},
	"NodeGetVolumeStatsResponse":        {1: {}, 2: {}},
	"GetPluginCapabilitiesResponse":     {1: {1: {}, 2: {}}},
	"ControllerGetCapabilitiesResponse": {1: {1: {}}},
}

// codec decodes answers of drivers with at most maxFields fields. Others fail the
// call.
var codec = wirecodec.Codec{Fields: maxFields, Shapes: shapes}
