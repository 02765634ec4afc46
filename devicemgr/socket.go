package devicemgr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/numa"
)

// Plugins in other processes. Their messages are limited and counted before they cost memory, so
// that a plugin cannot exhaust the agent's.

// Limits of what a plugin may cost.
const (
	// maxAttachment limits the bytes that a plugin may add to a container: they are stored with
	// the pod and passed to the runtime.
	maxAttachment = 1 << 20
	// listBytesPerSecond limits the rate at which a plugin's lists are read, and listPause is the
	// shortest time between two lists. A plugin that sends more blocks on its full socket buffer.
	listBytesPerSecond = 8 << 20
	listPause          = 50 * time.Millisecond
)

// remote is the Plugin behind a unix socket. Its errors do not have gRPC's wording. It connects
// at the first call, and again after a disconnect.
type remote struct {
	conn   *grpc.ClientConn
	client pluginapi.DevicePluginClient
	log    *zap.Logger
}

// dial returns the plugin behind a socket without connecting to it. An error is about gRPC's
// configuration.
func dial(socket string, log *zap.Logger) (*remote, error) {
	conn, err := pluginconn.Dial(socket, answers, grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(answers.Bytes)))
	if err != nil {
		return nil, err
	}
	return &remote{conn: conn, client: pluginapi.NewDevicePluginClient(conn), log: log}, nil
}

// Close closes the connection and ends all its calls.
func (r *remote) Close() error { return r.conn.Close() }

// resignedError is an error with which a plugin itself ended its list: it can be reached, but
// will not continue. Status codes that gRPC generates are not resignedErrors, since a broken
// connection may cause them.
type resignedError struct{ error }

// plain returns the error of a call in words for the statuses and events of pods.
func plain(err error) error { return pluginconn.Error(err, ErrAway) }

// Options asks the plugin for its optional calls.
func (r *remote) Options(ctx context.Context) (Options, error) {
	o, err := r.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	return Options{Prefer: o.GetGetPreferredAllocationAvailable(), PreStart: o.GetPreStartRequired()}, plain(err)
}

// Watch reads lists until the stream or ctx ends. It reads no faster than the limits above, so
// that a plugin that sends more blocks on its own socket buffer.
func (r *remote) Watch(ctx context.Context, list func([]Device)) error {
	stream, err := r.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return plain(err)
	}
	for {
		msg, err := stream.Recv()
		// io.EOF means that the plugin ended the stream without an error, as it does when it
		// exits. Its code is Unknown too.
		if status.Code(err) == codes.Unknown && !errors.Is(err, io.EOF) {
			return &resignedError{plain(err)}
		}
		if err != nil {
			return plain(err)
		}
		list(r.devices(msg))
		// The pause comes after the list, so that a single change is never delayed.
		pause := time.NewTimer(max(listPause, time.Duration(proto.Size(msg))*time.Second/listBytesPerSecond))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// devices converts a list. Invalid node numbers are dropped: the device then has no NUMA node,
// but can be used.
func (r *remote) devices(msg *pluginapi.ListAndWatchResponse) []Device {
	list := make([]Device, 0, len(msg.GetDevices()))
	impossible := 0
	for _, d := range msg.GetDevices() {
		dev := Device{ID: d.GetID(), Healthy: d.GetHealth() == pluginapi.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			if n.GetID() < 0 || n.GetID() >= numa.MaxNodes {
				impossible++
				continue
			}
			dev.Nodes = dev.Nodes.With(int(n.GetID()))
		}
		list = append(list, dev)
	}
	if impossible > 0 {
		r.log.Debug("ignored invalid NUMA nodes of devices", zap.Int("nodes", impossible))
	}
	return list
}

// Prefer asks for a preference. An empty answer means no preference.
func (r *remote) Prefer(ctx context.Context, available, must []string, size int) ([]string, error) {
	resp, err := r.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(size),
		}},
	})
	if err != nil || len(resp.GetContainerResponses()) == 0 {
		return nil, plain(err)
	}
	return resp.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// Allocate sends one container per request, as the kubelet does; plugins rely on it.
func (r *remote) Allocate(ctx context.Context, ids []string) (Attachment, error) {
	resp, err := r.client.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		return Attachment{}, plain(err)
	}
	if n := len(resp.GetContainerResponses()); n == 0 {
		return Attachment{}, errors.New("the plugin's answer has no container; want one")
	}
	c := resp.GetContainerResponses()[0]
	// The answer is stored with the pod, and sent to the runtime at each start.
	if n := proto.Size(c); n > maxAttachment {
		return Attachment{}, fmt.Errorf("the answer has %d bytes; want at most %d", n, maxAttachment)
	}
	return attachment(c), nil
}

// attachment converts a plugin's answer. Lists keep the answer's order; entries of maps have none
// until Attachment.sort.
func attachment(c *pluginapi.ContainerAllocateResponse) Attachment {
	a := Attachment{Annotations: c.GetAnnotations()}
	for k, v := range c.GetEnvs() {
		a.Env = append(a.Env, v1.EnvVar{Name: k, Value: v})
	}
	for _, m := range c.GetMounts() {
		a.Mounts = append(a.Mounts, Mount{m.GetContainerPath(), m.GetHostPath(), m.GetReadOnly()})
	}
	for _, d := range c.GetDevices() {
		a.Nodes = append(a.Nodes, DeviceNode{d.GetContainerPath(), d.GetHostPath(), d.GetPermissions()})
	}
	for _, d := range c.GetCdiDevices() {
		a.CDI = append(a.CDI, d.GetName())
	}
	return a
}

// PreStart sends only the devices: the API has no field for the container.
func (r *remote) PreStart(ctx context.Context, ids []string) error {
	_, err := r.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	return plain(err)
}
