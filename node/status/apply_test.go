package status

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func goodInputs(t testing.TB) Inputs {
	return Inputs{
		Addressing: Addressing{Hostname: "edge-1", Default4: addrs(t, "10.0.0.2")[0]},
		MaxPods:    110, MaxImages: 50, Version: "v1.37.2", Port: 10250,
		Facts:       Facts{Capacity: list("cpu=2 memory=1Gi"), BootID: "b", MachineID: "m", SystemUUID: "u", Kernel: "6.1", OSImage: "Debian"},
		RuntimeName: "containerd", RuntimeVersion: "2.1.0",
		Images: []v1.ContainerImage{{Names: []string{"a"}, SizeBytes: 1}},
	}
}

func TestApplyNewNode(t *testing.T) {
	in := goodInputs(t)
	yes := true
	in.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &yes}
	in.Handlers = []v1.NodeRuntimeHandler{{Name: ""}}
	in.Declared = []string{"X"}
	in.VolumesInUse = []v1.UniqueVolumeName{"v"}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	events, err := Apply(node, &in, &Seen{}, t1.Time)
	if err != nil {
		t.Fatal(err)
	}
	s := node.Status
	if got, want := reasons(events), "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	var kinds []string
	for _, c := range s.Conditions {
		kinds = append(kinds, fmt.Sprint(c.Type, "=", c.Status))
	}
	if got := strings.Join(kinds, " "); got != "MemoryPressure=False DiskPressure=False PIDPressure=False Ready=True" {
		t.Errorf("conditions %s", got)
	}
	info := s.NodeInfo
	if info.ContainerRuntimeVersion != "containerd://2.1.0" || info.KubeletVersion != "v1.37.2" || info.KernelVersion != "6.1" ||
		info.OSImage != "Debian" || info.MachineID != "m" || info.OperatingSystem == "" || info.Architecture == "" {
		t.Errorf("info %+v", info)
	}
	if s.DaemonEndpoints.KubeletEndpoint.Port != 10250 || len(s.RuntimeHandlers) != 1 || s.Features == nil || len(s.DeclaredFeatures) != 1 || len(s.Images) != 1 {
		t.Errorf("status %+v", s)
	}
	if s.VolumesInUse != nil {
		t.Error("volumes are written before they are known")
	}
	before := s.DeepCopy()
	if events, err := Apply(node, &in, &Seen{}, t1.Add(time.Hour)); err != nil || len(events) > 0 || !Same(before, &node.Status) {
		t.Errorf("a second time: %v, %v", events, err)
	}
}

func TestApplyErrorsLeaveTheRest(t *testing.T) {
	in := goodInputs(t)
	in.Addressing.Default4 = in.Addressing.Default6
	in.FactsErr = errors.New("no machine")
	in.ImagesErr = errors.New("no images")
	in.RuntimeVersion = ""
	in.VolumesSynced, in.VolumesInUse = true, []v1.UniqueVolumeName{"v"}
	node := &v1.Node{Status: v1.NodeStatus{
		Images: []v1.ContainerImage{{SizeBytes: 1}}, Features: &v1.NodeFeatures{}, DeclaredFeatures: []string{"kept"},
		NodeInfo: v1.NodeSystemInfo{KernelVersion: "old", BootID: "old", KubeProxyVersion: "x"}, //nolint:staticcheck // it has to go
	}}
	_, err := Apply(node, &in, &Seen{}, t1.Time)
	for _, want := range []string{"no machine", "no images", "node addresses"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	s := node.Status
	if s.NodeInfo.KubeProxyVersion != "" { //nolint:staticcheck // it has to go
		t.Error("the proxy's version stays")
	}
	if s.NodeInfo.KernelVersion != "old" || s.NodeInfo.BootID != "old" || s.Images != nil {
		t.Errorf("got %+v", s)
	}
	if s.Features == nil || len(s.DeclaredFeatures) != 1 || len(s.VolumesInUse) != 1 || len(s.Conditions) != 4 || s.Capacity.Pods().Value() != 110 {
		t.Errorf("got %+v", s)
	}
	in.FactsErr = nil
	if Apply(node, &in, &Seen{}, t1.Time); node.Status.NodeInfo.ContainerRuntimeVersion != "containerd://Unknown" {
		t.Errorf("runtime %q", node.Status.NodeInfo.ContainerRuntimeVersion)
	}
}

func TestShowImages(t *testing.T) {
	img := func(size int64, names ...string) v1.ContainerImage {
		return v1.ContainerImage{Names: names, SizeBytes: size}
	}
	all := []v1.ContainerImage{img(1, "s"), img(9, "d", "t1", "t2", "t3", "t4", "t5"), img(5, "y"), img(5, "x")}
	before := len(all[1].Names)
	for limit, want := range map[int]string{0: "", 1: "d", 3: "d x y", 4: "d x y s", 50: "d x y s", -1: "d x y s"} {
		var got []string
		for _, i := range showImages(all, limit) {
			got = append(got, i.Names[0])
			if len(i.Names) > 5 {
				t.Errorf("names %v", i.Names)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d: got %v, want %q", limit, got, want)
		}
	}
	if len(all[1].Names) != before || all[0].SizeBytes != 1 {
		t.Error("the list was changed")
	}
}

func TestSame(t *testing.T) {
	base := v1.NodeStatus{
		Phase: v1.NodeRunning, Capacity: list("cpu=1"),
		Conditions: []v1.NodeCondition{
			{Type: "A", Status: "True", LastHeartbeatTime: t0, LastTransitionTime: t0},
			{Type: "B", Status: "False", LastHeartbeatTime: t0, LastTransitionTime: t0},
		},
	}
	for name, tc := range map[string]struct {
		change func(*v1.NodeStatus)
		same   bool
	}{
		"nothing":            {func(*v1.NodeStatus) {}, true},
		"heartbeat":          {func(s *v1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = t1 }, true},
		"order":              {func(s *v1.NodeStatus) { slices.Reverse(s.Conditions) }, true},
		"order of heartbeat": {func(s *v1.NodeStatus) { slices.Reverse(s.Conditions); s.Conditions[1].LastHeartbeatTime = t1 }, true},
		"unit":               {func(s *v1.NodeStatus) { s.Capacity = list("cpu=1000m") }, true},
		"empty for nil":      {func(s *v1.NodeStatus) { s.Images = []v1.ContainerImage{} }, true},
		"status":             {func(s *v1.NodeStatus) { s.Conditions[0].Status = "False" }, false},
		"reason":             {func(s *v1.NodeStatus) { s.Conditions[0].Reason = "R" }, false},
		"transition":         {func(s *v1.NodeStatus) { s.Conditions[0].LastTransitionTime = t1 }, false},
		"one more":           {func(s *v1.NodeStatus) { s.Conditions = append(s.Conditions, v1.NodeCondition{Type: "C"}) }, false},
		"phase":              {func(s *v1.NodeStatus) { s.Phase = "" }, false},
		"capacity":           {func(s *v1.NodeStatus) { s.Capacity = list("cpu=2") }, false},
	} {
		other := base.DeepCopy()
		tc.change(other)
		kept := other.DeepCopy()
		if Same(&base, other) != tc.same || Same(other, &base) != tc.same {
			t.Errorf("%s: want %t", name, tc.same)
		}
		if len(kept.Conditions) > 0 && kept.Conditions[0] != other.Conditions[0] {
			t.Errorf("%s: it was changed", name)
		}
	}
	if !Same(nil, nil) || Same(nil, &base) || Same(&base, nil) {
		t.Error("nil")
	}
}
