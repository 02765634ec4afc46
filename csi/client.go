package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nodewright/nodewright/internal/pluginconn"
)

// Deadlines of calls. Those for calls about volumes and the node are the kubelet's; calls that a
// driver answers from memory have a shorter one.
const (
	callTimeout  = 2 * time.Minute
	quickTimeout = 30 * time.Second
	statsTimeout = 10 * time.Second
)

// client calls one driver, over one connection that exists while the driver is registered. It is
// safe for concurrent use.
type client struct {
	name string
	conn *grpc.ClientConn
	met  *metrics
}

// dial returns a client, which connects in the background; calls wait for the first attempt.
func dial(name, endpoint string, connect func(context.Context, string) (net.Conn, error), met *metrics) (*client, error) {
	var more []grpc.DialOption
	if connect != nil {
		more = append(more, grpc.WithContextDialer(connect))
	}
	conn, err := pluginconn.Dial(endpoint, answers, more...)
	if err != nil {
		return nil, err
	}
	return &client{name, conn, met}, nil
}

// close closes the connection. Running calls fail.
func (c *client) close() error { return c.conn.Close() }

// invoke makes one call with a deadline, and records its duration, whether it succeeds or fails.
// The values of secrets are removed from the driver's error text, since errors appear in logs and
// events. Errors are [*CallError].
func (c *client) invoke(ctx context.Context, timeout time.Duration, service, method string, req, resp proto.Message, secrets map[string]string) error {
	ctx, done := context.WithTimeout(ctx, timeout)
	defer done()
	path := "/" + service + "/" + method
	began := time.Now()
	err := c.conn.Invoke(ctx, path, req, resp)
	c.met.call(c.name, path, status.Code(err), time.Since(began))
	return callError(c.name, method, err, secrets)
}

const (
	// The full names of the services of CSI 1.x.
	nodeService       = "csi.v1.Node"
	identityService   = "csi.v1.Identity"
	controllerService = "csi.v1.Controller"
)

// node calls the Node service with the kubelet's deadline.
func (c *client) node(ctx context.Context, method string, req, resp proto.Message, secrets map[string]string) error {
	return c.invoke(ctx, callTimeout, nodeService, method, req, resp, secrets)
}

// abilities are the capabilities of a driver. They are read once, when it registers; a driver
// whose capabilities change has to register again.
type abilities struct {
	stage, stats, expand, health, multiWriter, mountGroup bool
}

// abilities returns the capabilities of the driver's node service.
func (c *client) abilities(ctx context.Context) (abilities, error) {
	var resp spec.NodeGetCapabilitiesResponse
	err := c.invoke(ctx, quickTimeout, nodeService, "NodeGetCapabilities", &spec.NodeGetCapabilitiesRequest{}, &resp, nil)
	if err != nil {
		return abilities{}, err
	}
	return abilitiesOf(&resp), nil
}

// abilitiesOf returns the capabilities in an answer. It ignores unknown ones, since newer
// versions of the specification add some.
func abilitiesOf(resp *spec.NodeGetCapabilitiesResponse) abilities {
	var a abilities
	for _, c := range resp.GetCapabilities() {
		switch c.GetRpc().GetType() {
		case spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
			a.stage = true
		case spec.NodeServiceCapability_RPC_GET_VOLUME_STATS:
			a.stats = true
		case spec.NodeServiceCapability_RPC_EXPAND_VOLUME:
			a.expand = true
		case spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH:
			a.health = true
		case spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			a.multiWriter = true
		case spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
			a.mountGroup = true
		}
	}
	return a
}

// attaches reports whether the driver's controller service attaches volumes, if the driver has
// that service at its socket on this node. It is called only without a cluster, where no
// CSIDriver objects exist.
func (c *client) attaches(ctx context.Context) (bool, error) {
	var plugin spec.GetPluginCapabilitiesResponse
	err := c.invoke(ctx, quickTimeout, identityService, "GetPluginCapabilities", &spec.GetPluginCapabilitiesRequest{}, &plugin, nil)
	if is(err, codes.Unimplemented) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	controls := false
	for _, p := range plugin.GetCapabilities() {
		controls = controls || p.GetService().GetType() == spec.PluginCapability_Service_CONTROLLER_SERVICE
	}
	// Without a controller service at this socket, the capability cannot be read.
	if !controls {
		return false, nil
	}
	var resp spec.ControllerGetCapabilitiesResponse
	err = c.invoke(ctx, quickTimeout, controllerService, "ControllerGetCapabilities", &spec.ControllerGetCapabilitiesRequest{}, &resp, nil)
	if is(err, codes.Unimplemented) {
		return false, nil // the controller service runs elsewhere
	}
	for _, c := range resp.GetCapabilities() {
		if c.GetRpc().GetType() == spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
			return true, err
		}
	}
	return false, err
}

// is reports whether err is a CallError with the given code.
func is(err error, code codes.Code) bool {
	var e *CallError
	return errors.As(err, &e) && e.Code == code
}

// info returns the driver's description of this node. If its content is not valid in API objects,
// the error is not a [*CallError].
func (c *client) info(ctx context.Context) (nodeInfo, error) {
	var resp spec.NodeGetInfoResponse
	if err := c.node(ctx, "NodeGetInfo", &spec.NodeGetInfoRequest{}, &resp, nil); err != nil {
		return nodeInfo{}, err
	}
	info, err := infoOf(&resp)
	if err != nil {
		return nodeInfo{}, fmt.Errorf("CSI driver %s: NodeGetInfo: %w", c.name, err)
	}
	return info, nil
}
