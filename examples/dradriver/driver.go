package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	regapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// driver is a DRA driver with a single device.
type driver struct {
	api.UnimplementedDRAPluginServer
	healthapi.UnimplementedDRAResourceHealthServer
	regapi.UnimplementedRegistrationServer

	name, registry, dir, cdi, sick string
	say                            func(string)
}

// The driver has only this device. Any number of claims may use it.
const (
	pool   = "node"
	device = "null0"
)

// lookForSick is the time between two checks whether the file of --sick exists.
const lookForSick = 200 * time.Millisecond

func (d *driver) socket() string { return filepath.Join(d.dir, d.name+".sock") }

// run serves until ctx ends. It opens the registration socket last, so that the driver
// is ready when the agent finds it.
func (d *driver) run(ctx context.Context, say func(string)) error {
	d.say = say
	service, registration := grpc.NewServer(), grpc.NewServer()
	api.RegisterDRAPluginServer(service, d)
	healthapi.RegisterDRAResourceHealthServer(service, d)
	regapi.RegisterRegistrationServer(registration, d)
	ended := make(chan error, 2)
	servers := map[*grpc.Server]string{service: d.socket(), registration: filepath.Join(d.registry, d.name+"-reg.sock")}
	for _, s := range []*grpc.Server{service, registration} {
		l, err := listen(servers[s])
		if err != nil {
			service.Stop()
			return err
		}
		go func() { ended <- s.Serve(l) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	registration.Stop()
	service.Stop()
	return err
}

// listen removes the socket of an earlier process, and listens at its path.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// GetInfo returns the driver's registration data.
func (d *driver) GetInfo(context.Context, *regapi.InfoRequest) (*regapi.PluginInfo, error) {
	return &regapi.PluginInfo{Type: regapi.DRAPlugin, Name: d.name, Endpoint: d.socket(), SupportedVersions: []string{api.DRAPluginService}}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (d *driver) NotifyRegistrationStatus(_ context.Context, st *regapi.RegistrationStatus) (*regapi.RegistrationStatusResponse, error) {
	if st.GetPluginRegistered() {
		d.say("registered")
	} else {
		d.say("not registered: " + st.GetError())
	}
	return &regapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources writes a CDI file for each claim.
func (d *driver) NodePrepareResources(_ context.Context, req *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse, error) {
	resp := &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		answer := &api.NodePrepareResourceResponse{}
		if err := d.write(c); err != nil {
			answer.Error = err.Error()
		} else {
			answer.Devices = []*api.Device{{PoolName: pool, DeviceName: device, CdiDeviceIds: []string{d.kind() + "=" + c.GetUid()}}}
			d.say("prepared " + c.GetNamespace() + "/" + c.GetName())
		}
		resp.Claims[c.GetUid()] = answer
	}
	return resp, nil
}

// NodeUnprepareResources deletes the CDI files of the claims.
func (d *driver) NodeUnprepareResources(_ context.Context, req *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse, error) {
	resp := &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		answer := &api.NodeUnprepareResourceResponse{}
		if err := os.Remove(d.file(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			answer.Error = err.Error()
		} else {
			d.say("unprepared " + c.GetNamespace() + "/" + c.GetName())
		}
		resp.Claims[c.GetUid()] = answer
	}
	return resp, nil
}

func (d *driver) kind() string { return d.name + "/claim" }

func (d *driver) file(c *api.Claim) string {
	return filepath.Join(d.cdi, d.name+"-"+filepath.Base(c.GetUid())+".json")
}

// write creates the CDI file of a claim. It renames a temporary file, since the runtime may
// read the CDI file at the same time.
func (d *driver) write(c *api.Claim) error {
	type object = map[string]any
	content, err := json.Marshal(object{
		"cdiVersion": "0.6.0", "kind": d.kind(),
		"devices": []object{{"name": c.GetUid(), "containerEdits": object{
			"env":         []string{fmt.Sprintf("DRA_CLAIM=%s/%s", c.GetNamespace(), c.GetName())},
			"deviceNodes": []object{{"path": "/dev/dra/" + c.GetName(), "hostPath": "/dev/null"}},
		}}},
	})
	if err != nil {
		return err
	}
	tmp := d.file(c) + ".tmp"
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, d.file(c))
}

// NodeWatchResources sends the health of the device at once, after each change, and
// every 10 s, which is shorter than the agent's health timeout.
func (d *driver) NodeWatchResources(_ *healthapi.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse]) error {
	var said healthapi.HealthStatus
	var at time.Time
	tick := time.NewTicker(lookForSick)
	defer tick.Stop()
	for {
		now, message := healthapi.HealthStatus_HEALTHY, ""
		if d.sick != "" {
			if _, err := os.Stat(d.sick); err == nil {
				now, message = healthapi.HealthStatus_UNHEALTHY, "the file "+d.sick+" exists"
			}
		}
		if now != said || time.Since(at) > 10*time.Second {
			said, at = now, time.Now()
			err := stream.Send(&healthapi.NodeWatchResourcesResponse{Devices: []*healthapi.DeviceHealth{{
				Device: &healthapi.DeviceIdentifier{PoolName: pool, DeviceName: device}, Health: now, Message: message, LastUpdatedTime: at.Unix(),
			}}})
			if err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}
