package dra

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/nodewright/nodewright/internal/pluginconn"
)

func encoded(f *testing.F, m proto.Message) []byte {
	f.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// decode reads an answer as it comes from a driver.
func decode(b []byte, m proto.Message) error {
	return answers.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
}

// For any answer of a driver about claims, texts are limited, and the stored result can be read
// again.
func FuzzPrepared(f *testing.F) {
	share := "s"
	f.Add(encoded(f, &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{
		"a": {Devices: []*api.Device{{RequestNames: []string{"r"}, PoolName: "p", DeviceName: "d", CdiDeviceIds: []string{"x/y=z"}, ShareId: &share}}},
		"b": {Error: "no"}, "c": nil,
	}}))
	f.Add([]byte("\x0a\x04\x12\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var msg api.NodePrepareResourcesResponse
		if decode(b, &msg) != nil {
			return
		}
		answer := preparedOf(&msg)
		if len(answer) != len(msg.GetClaims()) {
			t.Fatalf("%d claims of %d", len(answer), len(msg.GetClaims()))
		}
		for uid, p := range answer {
			if p.Err != nil && len(p.Err.Error()) > 2*pluginconn.MaxText {
				t.Fatalf("claim %q: an error of %d bytes", uid, len(p.Err.Error()))
			}
			stored, err := json.Marshal(p.Devices)
			if err != nil {
				t.Fatal(err)
			}
			var back []Device
			if err := json.Unmarshal(stored, &back); err != nil {
				t.Fatal(err)
			}
			if again, err := json.Marshal(back); err != nil || string(again) != string(stored) {
				t.Fatalf("stored as %s, and then as %s, %v", stored, again, err)
			}
		}
	})
}

// For any answer of a driver about unprepared claims, each claim has its own result.
func FuzzUnprepared(f *testing.F) {
	f.Add(encoded(f, &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{"a": {Error: "in use"}, "b": nil}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var msg api.NodeUnprepareResourcesResponse
		if decode(b, &msg) != nil {
			return
		}
		answer := unpreparedOf(&msg)
		for uid, c := range msg.GetClaims() {
			err, ok := answer[types.UID(uid)]
			if !ok || (err != nil) != (c.GetError() != "") || err != nil && len(err.Error()) > 2*pluginconn.MaxText {
				t.Fatalf("claim %q: %v, %t", uid, err, ok)
			}
		}
	})
}

// For any health report of a driver, times and texts are limited, and the API shows only its
// defined values.
func FuzzHealth(f *testing.F) {
	f.Add(encoded(f, &healthapi.NodeWatchResourcesResponse{Devices: []*healthapi.DeviceHealth{
		{Device: &healthapi.DeviceIdentifier{PoolName: "p", DeviceName: "d"}, Health: healthapi.HealthStatus_HEALTHY, HealthCheckTimeoutSeconds: -1},
		{Health: 77, HealthCheckTimeoutSeconds: 1 << 62, Message: "\u00e9"},
	}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var msg healthapi.NodeWatchResourcesResponse
		if decode(b, &msg) != nil {
			return
		}
		list := healthList(&msg)
		if len(list) != len(msg.GetDevices()) {
			t.Fatalf("%d devices of %d", len(list), len(msg.GetDevices()))
		}
		m := &Manager{drivers: map[string]*driver{}}
		p := &plugin{name: "d", health: map[deviceName]*health{}}
		m.drivers["d"] = &driver{name: "d", plugins: []*plugin{p}}
		m.report(t.Context(), p, list)
		defer m.unknown(p)
		if len(p.health) > maxHealth {
			t.Fatalf("%d devices are kept", len(p.health))
		}
		for name, h := range p.health {
			if len(name.pool) > maxDeviceName || len(name.device) > maxDeviceName || h.timeout <= 0 || h.timeout > 366*24*time.Hour ||
				len(h.message) > v1.ResourceHealthMessageMaxLength {
				t.Fatalf("%+v: %+v", name, h)
			}
			got := m.healthOf(HeldDevice{Driver: "d", Device: Device{Pool: name.pool, Name: name.device}}, time.Now())
			if got.Health != v1.ResourceHealthStatusHealthy && got.Health != v1.ResourceHealthStatusUnhealthy && got.Health != v1.ResourceHealthStatusUnknown {
				t.Fatalf("health is %q", got.Health)
			}
		}
		if again := healthList(&msg); !reflect.DeepEqual(again, list) {
			t.Fatalf("%+v, and then %+v", list, again)
		}
	})
}
