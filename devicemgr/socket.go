package devicemgr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nodewright/nodewright/numa"
)

// Limits of what a plugin can cost.
const (
	// maxMessage is the largest message taken: lists of 10,000 devices are
	// about 1 MB. The kubelet takes 4 MiB.
	maxMessage = 16 << 20
	// listBytesPerSecond is what is read of a plugin's lists. One that sends
	// more waits, as its socket's buffer is full.
	listBytesPerSecond = 8 << 20
)

// remote is a plugin behind a unix socket.
type remote struct {
	conn   *grpc.ClientConn
	client pluginapi.DevicePluginClient
	log    *zap.Logger
}

func dial(socket string, log *zap.Logger) (*remote, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithIdleTimeout(0), // the watch keeps it in use anyway
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry / 2, Multiplier: 2, Jitter: 0.2, MaxDelay: lastRetry},
			MinConnectTimeout: lastRetry,
		}),
	)
	if err != nil {
		return nil, err
	}
	return &remote{conn: conn, client: pluginapi.NewDevicePluginClient(conn), log: log}, nil
}

func (r *remote) Close() error { return r.conn.Close() }

// resignedError is a plugin's own error, with which it ended the watch: it is
// there, and has said that it does not go on.
type resignedError struct{ error }

// plain is an error without the words of gRPC.
func plain(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", ErrAway, st.Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	case codes.Unknown:
		return errors.New(st.Message())
	default:
		return fmt.Errorf("%s (%s)", st.Message(), st.Code())
	}
}

func (r *remote) Options(ctx context.Context) (Options, error) {
	o, err := r.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	return Options{Prefer: o.GetGetPreferredAllocationAvailable(), PreStart: o.GetPreStartRequired()}, plain(err)
}

func (r *remote) Watch(ctx context.Context, list func([]Device)) error {
	stream, err := r.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return plain(err)
	}
	for {
		msg, err := stream.Recv()
		if status.Code(err) == codes.Unknown && !errors.Is(err, io.EOF) {
			return &resignedError{plain(err)}
		}
		if err != nil {
			return plain(err)
		}
		list(r.devices(msg))
		pause := time.NewTimer(time.Duration(proto.Size(msg)) * time.Second / listBytesPerSecond)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// devices reads a list. Nodes that cannot be are left out.
func (r *remote) devices(msg *pluginapi.ListAndWatchResponse) []Device {
	list := make([]Device, 0, len(msg.GetDevices()))
	for _, d := range msg.GetDevices() {
		dev := Device{ID: d.GetID(), Healthy: d.GetHealth() == pluginapi.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			if n.GetID() < 0 || n.GetID() >= numa.MaxNodes {
				r.log.Debug("a device names a NUMA node that cannot be", zap.String("device", d.GetID()), zap.Int64("node", n.GetID()))
				continue
			}
			dev.Nodes = dev.Nodes.With(int(n.GetID()))
		}
		list = append(list, dev)
	}
	return list
}

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

func (r *remote) Allocate(ctx context.Context, ids []string) (Attachment, error) {
	resp, err := r.client.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		return Attachment{}, plain(err)
	}
	if n := len(resp.GetContainerResponses()); n == 0 {
		return Attachment{}, errors.New("the answer is for no container; want one")
	}
	return attachment(resp.GetContainerResponses()[0]), nil
}

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

func (r *remote) PreStart(ctx context.Context, ids []string) error {
	_, err := r.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	return plain(err)
}
