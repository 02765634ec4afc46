package devicemgr

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// written are checkpoints as kubelet v1.36.3 writes them.
var written = []string{
	`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r/x","DeviceIDs":{"-1":["z"],"0":["a","b"]},"AllocResp":"aGkK"},` +
		`{"PodUID":"v","ContainerName":"","ResourceName":"","DeviceIDs":null,"AllocResp":null}],"RegisteredDevices":{"r/x":["a","b"],"r/y":[],"r/z":null}},"Checksum":571780070}`,
}

func TestKubeletChecksum(t *testing.T) {
	for _, w := range written {
		f, err := parseKubelet([]byte(w))
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(f)
		if err != nil || string(again) != w {
			t.Errorf("got %s, %v\nwant %s", again, err, w)
		}
		if _, err := parseKubelet([]byte(strings.Replace(w, `"b"`, `"d"`, 1))); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("a changed checkpoint: %v, want its checksum refused", err)
		}
	}
}

// A kubelet reads the devices of pods from this agent's checkpoint.
func TestKubeletEntries(t *testing.T) {
	has := &record{Version: recordVersion, UID: "u", Held: []Holding{{
		Container: "c", Resource: "example.com/thing",
		Devices: []HeldDevice{{ID: "a"}, {ID: "b", Nodes: 0b101}},
		Attachment: Attachment{
			Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B"}}, Mounts: []Mount{{"/in", "/out", true}}, Nodes: []DeviceNode{{"/dev/in", "/dev/out", "rw"}},
			Annotations: map[string]string{"k": "v"}, CDI: []string{"example.com/thing=a"},
		},
	}}}
	list, err := entries(map[types.UID]*record{"u": has})
	if err != nil {
		t.Fatal(err)
	}
	all, problems := kubeletData{PodDeviceEntries: list}.records()
	if len(problems) > 0 || !reflect.DeepEqual(all["u"], has) {
		t.Errorf("got %+v, %v, want %+v", all["u"], problems, has)
	}
}

func TestKubeletEntriesRefused(t *testing.T) {
	good := kubeletEntry{PodUID: "u", ContainerName: "c", ResourceName: "example.com/thing", DeviceIDs: map[int64][]string{0: {"a"}}}
	for name, change := range map[string]func(*kubeletEntry){
		"no pod":               func(e *kubeletEntry) { e.PodUID = "" },
		"no container":         func(e *kubeletEntry) { e.ContainerName = "" },
		"a wrong resource":     func(e *kubeletEntry) { e.ResourceName = "thing" },
		"no devices":           func(e *kubeletEntry) { e.DeviceIDs = nil },
		"a device without ID":  func(e *kubeletEntry) { e.DeviceIDs = map[int64][]string{0: {""}} },
		"an answer that's not": func(e *kubeletEntry) { e.AllocResp = []byte("hi\n") },
		"one twice":            func(*kubeletEntry) {},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			d := kubeletData{PodDeviceEntries: []kubeletEntry{good, bad}}
			all, problems := d.records()
			if len(problems) != 1 || len(all) != 1 || len(all["u"].Held) != 1 {
				t.Errorf("got %v, %v, want the good one and a problem", all, problems)
			}
		})
	}
	if _, problems := (kubeletData{PodDeviceEntries: []kubeletEntry{good}}).records(); len(problems) > 0 {
		t.Error(problems)
	}
	far := good
	far.DeviceIDs = map[int64][]string{1000: {"a"}, -7: {"b"}, 2: {"a"}}
	all, _ := kubeletData{PodDeviceEntries: []kubeletEntry{far}}.records()
	if want := []HeldDevice{{ID: "a", Nodes: 0b100}, {ID: "b"}}; !slices.Equal(all["u"].Held[0].Devices, want) {
		t.Errorf("got %+v, want %+v", all["u"].Held[0].Devices, want)
	}
}

func FuzzKubelet(f *testing.F) {
	for _, w := range written {
		f.Add([]byte(w))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d kubeletFormat
		if json.Unmarshal(b, &d) != nil {
			return
		}
		d.Data.checksum()
		all, _ := d.Data.records()
		for uid, r := range all {
			if err := r.check(uid); err != nil {
				t.Error(err)
			}
		}
	})
}
