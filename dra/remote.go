package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/pluginconn"
)

// Limits of what a driver may cost.
const (
	// maxPrepared limits the bytes of the answer for one claim, which are stored with the claim.
	// The API allows 32 devices per claim.
	maxPrepared = 256 << 10
	// healthBytesPerSecond limits the rate at which health reports are read, and healthPause is
	// the shortest time between two reports. A driver that sends more blocks on its full socket
	// buffer.
	healthBytesPerSecond = 1 << 20
	healthPause          = 50 * time.Millisecond
)

// remote is a driver behind a unix socket.
type remote struct {
	// service is the gRPC service of the driver's version.
	name, service string
	conn          *grpc.ClientConn
	calls         *prometheus.HistogramVec
}

// dial creates a connection without waiting for it; follow connects.
func (m *Manager) dial(name, socket, service string) (*remote, error) {
	conn, err := pluginconn.Dial(socket, answers)
	if err != nil {
		return nil, err
	}
	return &remote{name, service, conn, m.met.calls}, nil
}

// Close closes the connection. Its calls fail.
func (r *remote) Close() error { return r.conn.Close() }

// follow keeps the connection open until ctx ends, and calls connected at each change of its
// state. After a failed attempt gRPC reconnects by itself, but after the end of a connection it
// stays idle.
func (r *remote) follow(ctx context.Context, connected func(bool)) {
	for {
		state := r.conn.GetState()
		connected(state == connectivity.Ready)
		if state == connectivity.Idle {
			r.conn.Connect()
		}
		if !r.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// invoke makes one call and records its duration, whether it succeeds or fails. It does not wait
// for a connection: without one, the call fails at once.
func (r *remote) invoke(ctx context.Context, call string, req, resp proto.Message) error {
	began := time.Now()
	method := "/" + r.service + "/" + call
	err := r.conn.Invoke(ctx, method, req, resp)
	r.calls.WithLabelValues(r.name, method, status.Code(err).String()).Observe(time.Since(began).Seconds())
	return plain(err)
}

// plain returns the error of a call in words for the statuses and events of pods.
func plain(err error) error { return pluginconn.Error(err, ErrAway) }

// claimsOf converts claims to the API's messages.
func claimsOf(refs []ClaimRef) []*api.Claim {
	list := make([]*api.Claim, len(refs))
	for i, c := range refs {
		list[i] = &api.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}
	}
	return list
}

func (r *remote) Prepare(ctx context.Context, claims []ClaimRef) (map[types.UID]Prepared, error) {
	var resp api.NodePrepareResourcesResponse
	if err := r.invoke(ctx, callPrepare, &api.NodePrepareResourcesRequest{Claims: claimsOf(claims)}, &resp); err != nil {
		return nil, err
	}
	return preparedOf(&resp), nil
}

// preparedOf converts an answer. A claim that exceeds a limit gets an error. If a claim has both
// an error and devices, the devices are ignored.
func preparedOf(resp *api.NodePrepareResourcesResponse) map[types.UID]Prepared {
	out := make(map[types.UID]Prepared, len(resp.GetClaims()))
	for uid, c := range resp.GetClaims() {
		var p Prepared
		if c.GetError() != "" {
			p.Err = errors.New(callerror.Cut(c.GetError(), pluginconn.MaxText))
		} else if n := proto.Size(c); n > maxPrepared {
			out[types.UID(uid)] = Prepared{Err: fmt.Errorf("the answer has %d bytes; want at most %d", n, maxPrepared)}
			continue
		}
		for _, d := range c.GetDevices() {
			p.Devices = append(p.Devices, Device{
				Pool: d.GetPoolName(), Name: d.GetDeviceName(), Requests: d.GetRequestNames(), CDI: d.GetCdiDeviceIds(), Share: d.GetShareId(),
			})
		}
		out[types.UID(uid)] = p
	}
	return out
}

func (r *remote) Unprepare(ctx context.Context, claims []ClaimRef) (map[types.UID]error, error) {
	var resp api.NodeUnprepareResourcesResponse
	if err := r.invoke(ctx, callUnprepare, &api.NodeUnprepareResourcesRequest{Claims: claimsOf(claims)}, &resp); err != nil {
		return nil, err
	}
	return unpreparedOf(&resp), nil
}

// unpreparedOf converts an answer. A claim with an empty value has succeeded.
func unpreparedOf(resp *api.NodeUnprepareResourcesResponse) map[types.UID]error {
	out := make(map[types.UID]error, len(resp.GetClaims()))
	for uid, c := range resp.GetClaims() {
		out[types.UID(uid)] = nil
		if c.GetError() != "" {
			out[types.UID(uid)] = errors.New(callerror.Cut(c.GetError(), pluginconn.MaxText))
		}
	}
	return out
}

// Watch reads the stream of reports until it ends. Health is an optional service, separate from the
// service for claims. For a driver without it, Watch returns ErrNoHealth.
func (r *remote) Watch(ctx context.Context, report func([]DeviceHealth)) error {
	stream, err := healthapi.NewDRAResourceHealthClient(r.conn).NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{})
	for err == nil {
		var msg *healthapi.NodeWatchResourcesResponse
		if msg, err = stream.Recv(); err != nil {
			break
		}
		report(healthList(msg))
		// During the pause nothing is read, so the stream's flow control blocks the driver.
		pause := time.NewTimer(max(healthPause, time.Duration(proto.Size(msg))*time.Second/healthBytesPerSecond))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
	if status.Code(err) == codes.Unimplemented {
		return ErrNoHealth
	}
	return plain(err)
}

// maxHealthTimeout limits a driver's timeout in seconds, so that it fits a time.Duration.
const maxHealthTimeout = int64(365 * 24 * time.Hour / time.Second)

// healthList converts a report. The driver's own time of its last check is ignored, since its
// clock may be wrong; the time of receipt counts.
func healthList(msg *healthapi.NodeWatchResourcesResponse) []DeviceHealth {
	list := make([]DeviceHealth, 0, len(msg.GetDevices()))
	for _, d := range msg.GetDevices() {
		h := DeviceHealth{
			Pool: d.GetDevice().GetPoolName(), Device: d.GetDevice().GetDeviceName(), Message: d.GetMessage(),
			Timeout: time.Duration(min(max(d.GetHealthCheckTimeoutSeconds(), 0), maxHealthTimeout)) * time.Second,
		}
		switch d.GetHealth() {
		case healthapi.HealthStatus_HEALTHY:
			h.Health = Healthy
		case healthapi.HealthStatus_UNHEALTHY:
			h.Health = Unhealthy
		}
		list = append(list, h)
	}
	return list
}
