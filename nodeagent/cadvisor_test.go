package nodeagent

import (
	"context"
	"errors"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/node/stats"
	usagemetrics "github.com/nodewright/nodewright/nodeagent/internal/usage"
)

type podDetails struct {
	pods []pressure.PodDetail
	err  error
}

func (p *podDetails) Details() ([]pressure.PodDetail, error) { return p.pods, p.err }

func (p *podDetails) Devices() []stats.Device {
	return []stats.Device{{Name: "/dev/sda", Reads: 1}}
}

// sandboxes reports one's image, and counts how often it is asked.
type sandboxes struct {
	asked int
	err   error
	info  string
}

func (s *sandboxes) PodSandboxStatus(_ context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.asked++
	if !verbose || id != "s1" {
		return nil, errors.New("no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": s.info}}, s.err
}

func TestDetailsOfContainers(t *testing.T) {
	one := uint64(1)
	pods := &podDetails{err: errors.New("some cgroup"), pods: []pressure.PodDetail{{
		UID: "u1", Detail: stats.Detail{Path: "/pods/u1"},
		Sandbox: pressure.InstanceDetail{ID: "s1", Detail: stats.Detail{Path: "/pods/u1/s1", Interfaces: []stats.Interface{{Name: "eth0", RxPackets: &one}}}},
		Containers: []pressure.InstanceDetail{{Name: "c", ID: "c1", Image: "web:1", Detail: stats.Detail{
			Path: "/pods/u1/c1", Cgroup: stats.Cgroup{Cache: &one}, Disks: []stats.DiskIO{{Device: "/dev/sda", Reads: 7}},
		}}},
	}}}
	rt := &sandboxes{err: errors.New("busy")}
	d := &details{usage: pods, runtime: rt}
	sandbox := usagemetrics.Key{PodUID: "u1", Container: usagemetrics.Sandbox}
	if got, _ := d.Details(t.Context()); got[sandbox].Image != "" || got[sandbox].Name != "s1" {
		t.Errorf("of a runtime that is busy: %+v", got[sandbox])
	}
	rt.err, rt.info = nil, `{"pid": 7, "image": "pause:3", "config": {}}`
	for range 3 {
		got, err := d.Details(t.Context())
		if !errors.Is(err, pods.err) || len(got) != 3 {
			t.Fatalf("got %+v, %v", got, err)
		}
		if s := got[sandbox]; s.Image != "pause:3" || s.Path != "/pods/u1/s1" || len(s.Interfaces) != 1 || *s.Interfaces[0].RxPackets != 1 {
			t.Errorf("sandbox: %+v", s)
		}
		if c := got[usagemetrics.Key{PodUID: "u1", Container: "c"}]; c.Path != "/pods/u1/c1" || c.Name != "c1" || c.Image != "web:1" || *c.Cache != 1 || c.Disks[0].Reads != 7 {
			t.Errorf("container: %+v", c)
		}
		if p := got[usagemetrics.Key{PodUID: "u1"}]; p.Path != "/pods/u1" || p.Name != "" || p.Image != "" {
			t.Errorf("pod: %+v", p)
		}
	}
	if rt.asked != 2 {
		t.Errorf("the runtime was asked %d times, want once more than it failed", rt.asked)
	}
	pods.pods = nil
	if _, _ = d.Details(t.Context()); len(d.pauses) > 0 {
		t.Errorf("of what is gone there stays %v", d.pauses)
	}
}

func TestMachineOf(t *testing.T) {
	if m := (&Builder{}).machine(); m.Cores < 1 || m.PhysicalCores < 1 || m.PhysicalCores > m.Cores || m.Sockets < 1 || m.MemoryBytes < 1<<20 || m.BootID == "" {
		t.Errorf("got %+v", m)
	}
}

type groupDetails struct{ podDetails }

func (groupDetails) Groups() ([]stats.Detail, error) {
	return []stats.Detail{{Path: "/kubepods", Usage: &statsapi.ContainerStats{Name: "x"}}}, errors.New("some cgroup")
}

// Cgroups above pods are known where the node's usage knows them.
func TestDetailsOfGroups(t *testing.T) {
	d := &details{usage: &podDetails{}}
	if got, err := d.Groups(); len(got) > 0 || err != nil {
		t.Errorf("%+v, %v of one that knows none", got, err)
	}
	d.usage = &groupDetails{}
	if got, err := d.Groups(); len(got) != 1 || got[0].Path != "/kubepods" || got[0].Usage.Name != "x" || err == nil {
		t.Errorf("%+v, %v", got, err)
	}
}
