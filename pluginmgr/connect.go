package pluginmgr

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodewright/nodewright/internal/pluginconn"
)

// answers limits the answers of plugins.
var answers = pluginconn.Limits{Bytes: 64 << 10, Fields: 4096}

// Limits of what an answer says.
const (
	// maxName limits the bytes of a type and of a name. Names are DNS subdomains or
	// names of resources.
	maxName = 1 + 253 + 63
	// maxVersions limits the versions of a plugin, and maxVersion the bytes of one.
	maxVersions = 64
	maxVersion  = 128
	// maxPath limits the path of a socket (PATH_MAX of limits.h).
	maxPath = 4096
)

// check returns an error if a field of an Info is missing or exceeds its limit. The handler
// checks everything else.
func (i Info) check() error {
	var errs []error
	if i.Type == "" || len(i.Type) > maxName {
		errs = append(errs, fmt.Errorf("type is %.64q, of %d bytes; want 1 to %d", i.Type, len(i.Type), maxName))
	}
	if i.Name == "" || len(i.Name) > maxName {
		errs = append(errs, fmt.Errorf("name is %.64q, of %d bytes; want 1 to %d", i.Name, len(i.Name), maxName))
	}
	if !filepath.IsAbs(i.Endpoint) || len(i.Endpoint) > maxPath || strings.ContainsRune(i.Endpoint, 0) {
		errs = append(errs, fmt.Errorf("endpoint is %.64q, of %d bytes; want an absolute path of at most %d", i.Endpoint, len(i.Endpoint), maxPath))
	}
	if len(i.Versions) > maxVersions {
		errs = append(errs, fmt.Errorf("there are %d supported versions; want at most %d", len(i.Versions), maxVersions))
	}
	for _, v := range i.Versions[:min(len(i.Versions), maxVersions)] {
		if len(v) > maxVersion {
			errs = append(errs, fmt.Errorf("supported version %.64q has %d bytes; want at most %d", v, len(v), maxVersion))
			break
		}
	}
	return errors.Join(errs...)
}

// remote is a plugin behind a unix socket.
type remote struct {
	conn   *grpc.ClientConn
	client api.RegistrationClient
}

// connect returns the plugin behind a socket, by the plugin registration API v1.
func connect(_ context.Context, socket string) (Plugin, error) {
	conn, err := pluginconn.Dial(socket, answers)
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
	return infoOf(i), nil
}

func infoOf(i *api.PluginInfo) Info {
	return Info{Type: i.GetType(), Name: i.GetName(), Endpoint: i.GetEndpoint(), Versions: i.GetSupportedVersions()}
}

func (r *remote) Notify(ctx context.Context, registered bool, reason string) error {
	_, err := r.client.NotifyRegistrationStatus(ctx, &api.RegistrationStatus{PluginRegistered: registered, Error: reason})
	return err
}

func (r *remote) Close() error { return r.conn.Close() }
