package csi

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// answers limits the answers of drivers, in bytes and fields.
var answers = pluginconn.Limits{Bytes: 256 << 10, Fields: 4096, Shapes: map[protoreflect.Name]wirecount.Shape{
	"NodeGetCapabilitiesResponse":       {1: {1: {}}},
	"NodeGetInfoResponse":               {3: {1: {}}},
	"NodeGetVolumeStatsResponse":        {1: {}, 2: {}},
	"GetPluginCapabilitiesResponse":     {1: {1: {}, 2: {}}},
	"ControllerGetCapabilitiesResponse": {1: {1: {}}},
}}
