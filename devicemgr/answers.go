package devicemgr

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/internal/wirecount"
)

// answers limits the answers of plugins. The shapes have field numbers of the device plugin API's
// api.proto. A list of 10,000 devices has about 1 MB; the kubelet accepts 4 MiB. Each of maxDevices
// devices may have eight fields.
var answers = pluginconn.Limits{Bytes: 16 << 20, Fields: 8 * maxDevices, Shapes: map[protoreflect.Name]wirecount.Shape{
	"ListAndWatchResponse":        {1: {3: {1: {}}}}, // devices with the nodes of their topology
	"PreferredAllocationResponse": {1: {}},
	"AllocateResponse":            {1: {1: {}, 2: {}, 3: {}, 4: {}, 5: {}}},
}}
