// Command registrar replaces the image csi-node-driver-registrar, whose sources are not available
// as a Go module. It asks a driver for its name and registers the driver with the node's agent
// (KEP-595, k8s.io/kubelet/pkg/apis/pluginregistration).
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	address := flag.String("csi-address", "/csi/csi.sock", "the driver's socket")
	endpoint := flag.String("kubelet-registration-path", "", "the same, as the agent sees it")
	timeout := flag.Duration("timeout", time.Second, "of a call")
	_ = flag.String("v", "", "no effect")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *address, *endpoint, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "registrar:", err)
		stop()
		os.Exit(1)
	}
}

// server answers the agent's calls of the plugin registration API.
type server struct {
	registration.UnimplementedRegistrationServer
	info   registration.PluginInfo
	failed chan error
}

func (s *server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: s.info.Type, Name: s.info.Name, Endpoint: s.info.Endpoint, SupportedVersions: s.info.SupportedVersions}, nil
}

func (s *server) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		s.failed <- fmt.Errorf("the agent refuses the driver: %s", status.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func run(ctx context.Context, address, endpoint string, timeout time.Duration) error {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	name, err := ask(ctx, conn, timeout)
	if err != nil {
		return err
	}
	socket := filepath.Join("/registration", name+"-reg.sock")
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &server{info: registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"}}, failed: make(chan error, 1)}
	srv := grpc.NewServer()
	registration.RegisterRegistrationServer(srv, s)
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop() // removes the socket
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for state := connectivity.Ready; conn.WaitForStateChange(ctx, state); state = conn.GetState() {
			if state == connectivity.TransientFailure {
				return
			}
		}
	}()
	select {
	case err := <-s.failed:
		return err
	case <-lost:
		if ctx.Err() == nil {
			return fmt.Errorf("the driver at %s has ended", address)
		}
	case <-ctx.Done():
	}
	return nil
}

// ask waits until the driver answers, and returns the driver's name.
func ask(ctx context.Context, conn *grpc.ClientConn, timeout time.Duration) (string, error) {
	for {
		call, cancel := context.WithTimeout(ctx, timeout)
		info, err := csi.NewIdentityClient(conn).GetPluginInfo(call, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
		cancel()
		if err == nil {
			return info.GetName(), nil
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(time.Second):
			fmt.Fprintln(os.Stderr, "registrar: the driver does not answer:", err)
		}
	}
}
