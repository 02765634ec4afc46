package pluginmgr

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// remote is a plugin behind a unix socket.
type remote struct {
	conn   *grpc.ClientConn
	client api.RegistrationClient
}

// connect uses the plugin registration API, v1.
func connect(_ context.Context, socket string) (Plugin, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
	)
	if err != nil {
		return nil, err
	}
	return &remote{conn, api.NewRegistrationClient(conn)}, nil
}

func (r *remote) Info(ctx context.Context) (Info, error) {
	i, err := r.client.GetInfo(ctx, &api.InfoRequest{})
	if err != nil {
		return Info{}, err
	}
	return Info{Type: i.GetType(), Name: i.GetName(), Endpoint: i.GetEndpoint(), Versions: i.GetSupportedVersions()}, nil
}

func (r *remote) Notify(ctx context.Context, registered bool, why string) error {
	_, err := r.client.NotifyRegistrationStatus(ctx, &api.RegistrationStatus{PluginRegistered: registered, Error: why})
	return err
}

func (r *remote) Close() error { return r.conn.Close() }
