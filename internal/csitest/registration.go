package csitest

import (
	"context"
	"errors"
	"net"
	"os"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Announce serves the plugin registration API for the driver at socket, which is in the directory
// that an agent watches. told is called with the result of each registration: nil if the agent has
// accepted the driver. told must not block, and may be nil. stop ends the service and removes the
// socket.
func (d *Driver) Announce(socket, name string, versions []string, told func(error)) (stop func(), err error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, &registration{info: &api.PluginInfo{
		Type: "CSIPlugin", Name: name, Endpoint: d.cfg.Socket, SupportedVersions: versions,
	}, told: told})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	return func() {
		s.Stop()
		<-ended
		_ = os.Remove(socket)
	}, nil
}

type registration struct {
	api.UnsafeRegistrationServer

	info *api.PluginInfo
	told func(error)
}

// GetInfo implements the registration service.
func (r *registration) GetInfo(context.Context, *api.InfoRequest) (*api.PluginInfo, error) {
	return r.info, nil
}

// NotifyRegistrationStatus implements the registration service.
func (r *registration) NotifyRegistrationStatus(_ context.Context, s *api.RegistrationStatus) (*api.RegistrationStatusResponse, error) {
	if r.told != nil {
		var err error
		if !s.GetPluginRegistered() {
			err = errors.New(s.GetError())
		}
		r.told(err)
	}
	return &api.RegistrationStatusResponse{}, nil
}
