package devicemgr

import (
	"encoding/json"
	"slices"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/numa"
)

func encoded(f *testing.F, m proto.Message) []byte {
	f.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// decode reads a message as it comes from a plugin.
func decode(b []byte, m proto.Message) error {
	return answers.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
}

// For any list of a plugin, the devices kept are sorted, have names, are within the limit and on
// possible NUMA nodes; the same list has the same result.
func FuzzListAndWatch(f *testing.F) {
	f.Add(encoded(f, &pluginapi.ListAndWatchResponse{Devices: []*pluginapi.Device{
		{ID: "b", Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: 1}, {ID: -1}, {ID: 700}}}},
		{ID: "a", Health: "healthy"}, {ID: "b"}, {},
	}}))
	f.Add([]byte("\x0a\x00\x0a\x00"))
	f.Add([]byte{0x0a, 0x80, 0x80, 0x80, 0x80, 0x10})
	r := &remote{log: zap.NewNop()}
	f.Fuzz(func(t *testing.T, b []byte) {
		var msg pluginapi.ListAndWatchResponse
		if decode(b, &msg) != nil {
			return
		}
		list, dropped := normal(r.devices(&msg))
		if len(list)+dropped != len(msg.GetDevices()) || len(list) > maxDevices {
			t.Fatalf("%d devices are kept and %d dropped of %d", len(list), dropped, len(msg.GetDevices()))
		}
		for i, d := range list {
			if d.ID == "" || len(d.ID) > maxID || i > 0 && list[i-1].ID >= d.ID {
				t.Fatalf("device %d has the ID %.100q", i, d.ID)
			}
			if got, ok := find(list, d.ID); !ok || got != d {
				t.Fatalf("%.100q is not found", d.ID)
			}
			for n := range d.Nodes.All() {
				if n < 0 || n >= numa.MaxNodes {
					t.Fatalf("%.100q is near node %d", d.ID, n)
				}
			}
		}
		if again, _ := normal(list); !slices.Equal(again, list) {
			t.Fatalf("%v has become %v", list, again)
		}
	})
}

// For any answer to Allocate, the additions to a container are sorted, can be stored and read
// again, and have no conflicts among themselves.
func FuzzAllocate(f *testing.F) {
	f.Add(encoded(f, &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
		Envs: map[string]string{"A": "1", "B": ""}, Annotations: map[string]string{"a": "b"},
		Mounts:     []*pluginapi.Mount{{ContainerPath: "/b", HostPath: "/x", ReadOnly: true}, {ContainerPath: "/a"}},
		Devices:    []*pluginapi.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/null", Permissions: "rw"}},
		CdiDevices: []*pluginapi.CDIDevice{{Name: "example.com/gpu=0"}, {}},
	}}}))
	f.Add([]byte("\x0a\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var msg pluginapi.AllocateResponse
		if decode(b, &msg) != nil || len(msg.GetContainerResponses()) == 0 {
			return
		}
		a := attachment(msg.GetContainerResponses()[0])
		var all Attachment
		all.merge(a)
		if again := all; len(again.merge(all)) != 0 {
			t.Fatalf("%+v conflicts with itself", all)
		}
		stored, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		var back Attachment
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		twice, err := json.Marshal(back)
		if err != nil || string(twice) != string(stored) {
			t.Fatalf("stored as %s, and then as %s, %v", stored, twice, err)
		}
	})
}

// Any registration is rejected with a short error, or names a socket in the directory.
func FuzzRegister(f *testing.F) {
	f.Add(encoded(f, &pluginapi.RegisterRequest{Version: "v1beta1", Endpoint: "gpu.sock", ResourceName: "example.com/gpu"}))
	f.Add(encoded(f, &pluginapi.RegisterRequest{Version: "v1beta1", Endpoint: "../gpu.sock", ResourceName: "example.com/gpu"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var req pluginapi.RegisterRequest
		if decode(b, &req) != nil {
			return
		}
		m, err := New(Config{SocketDir: t.TempDir(), Store: &checkpointtest.Disk{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := (&registry{m: m}).register(t.Context(), &req); err == nil || len(err.Error()) > 2*pluginconn.MaxText {
			t.Fatalf("%v for an endpoint that cannot be there", err)
		}
		if len(m.resources) != 0 {
			t.Fatal("a resource is remembered of a plugin that was refused")
		}
	})
}
