package resources_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/record"
)

func TestDevicesNewAndJoin(t *testing.T) {
	if _, err := resources.NewDevices(resources.DevicesConfig{}); err == nil || !strings.Contains(err.Error(), "DevicesConfig.Manager") {
		t.Errorf("New without a manager: %v", err)
	}
	m, err := devicemgr.New(devicemgr.Config{Store: &checkpointtest.Disk{}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := resources.NewDevices(resources.DevicesConfig{Manager: m})
	if err != nil || p.Name() != "devices" {
		t.Fatalf("name %q, %v", p.Name(), err)
	}
	if err := p.Join(agenttest.NewHost(t)); err != nil {
		t.Error(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err == nil {
		t.Error("a part of one agent joined another one")
	}
}

// A pod has its devices from its admission to its end, and its containers and its
// status show them.
func TestPodWithDevices(t *testing.T) {
	bubble(t, func() *devicetest.Plugin {
		p := devicetest.NewPlugin(devicetest.Healthy("a", "b")...)
		p.Does.PreStart = true
		return p
	}, func(t *testing.T, n *devicesNode, p *devicetest.Plugin) {
		pod := newDevicesPod("p", "main=1", "other")
		if n.Waits(newDevicesPod("plain", "main")) || !n.Waits(pod) {
			t.Error("plugins are asked for the pod with devices, and for that alone")
		}
		n.wantAdmitted(newDevicesPod("plain", "main"), pod)
		if n.Waits(pod) {
			t.Error("plugins are asked again")
		}
		if c := n.Resources()[thing]; c != (part.Count{Capacity: 2, Allocatable: 2, Used: 1, Free: 1}) {
			t.Errorf("resources %+v", c)
		}
		in := podspec.Input{Attached: map[string]podspec.Attachment{"main": {CDI: []string{"x/y=z"}}}}
		if err := n.Compile(pod, &in); err != nil {
			t.Fatal(err)
		}
		got := in.Attached["main"]
		if !slices.Equal(got.CDI, []string{"x/y=z", "example.com/thing=a"}) || got.Env[0].Value != "a" || !got.Mounts[0].GetReadonly() ||
			got.Devices[0].GetPermissions() != "rw" || got.Annotations["example.com/from"] != "plugin" {
			t.Errorf("attached %+v", got)
		}
		for _, c := range []string{"main", "other"} {
			if _, err := n.BeforeCreate(t.Context(), part.Container{Pod: pod, Name: c}, nil); err != nil {
				t.Error(err)
			}
		}
		if calls := p.Called(); calls != "allocate a; prestart a" {
			t.Errorf("calls %q", calls)
		}

		st := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}, {Name: "other"}}}
		n.Report(pod, &st)
		before := st.ContainerStatuses[0].AllocatedResourcesStatus
		if len(before) != 1 || before[0].Resources[0].Health != v1.ResourceHealthStatusHealthy || st.ContainerStatuses[1].AllocatedResourcesStatus != nil {
			t.Errorf("status %+v", st)
		}
		p.Lists <- []devicemgr.Device{{ID: "a"}, {ID: "b", Healthy: true}}
		n.wantCalls("resync p", "readmit")
		n.Report(pod, &st)
		if h := st.ContainerStatuses[0].AllocatedResourcesStatus; len(h) != 1 || h[0].Resources[0].Health != v1.ResourceHealthStatusUnhealthy {
			t.Errorf("status %+v", st)
		}
		if before[0].Resources[0].Health != v1.ResourceHealthStatusHealthy {
			t.Error("an earlier status was changed")
		}

		for range 2 {
			if err := n.Stopped(t.Context(), part.RefOf(pod)); err != nil {
				t.Error(err)
			}
		}
		n.wantCalls("readmit")
		if used := n.Resources()[thing].Used; used != 0 {
			t.Errorf("%d devices are used by nobody", used)
		}
		n.wantAdmitted(newDevicesPod("q", "main=1"))
		if err := n.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil || n.Resources()[thing].Used != 0 {
			t.Errorf("devices of a pod that is gone: %+v, %v", n.Resources()[thing], err)
		}
	})
}

// Only sidecars among the init containers show how their devices are.
func TestDevicesReportInitContainers(t *testing.T) {
	bubble(t, func() *devicetest.Plugin { return devicetest.NewPlugin(devicetest.Healthy("a", "b")...) }, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
		pod := newDevicesPod("p", "init=1", "side=1")
		pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
		always := v1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers[1].RestartPolicy = &always
		n.wantAdmitted(pod)
		st := v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "init"}, {Name: "side"}}}
		n.Report(pod, &st)
		if st.InitContainerStatuses[0].AllocatedResourcesStatus != nil || len(st.InitContainerStatuses[1].AllocatedResourcesStatus) != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// What runs keeps its devices over a restart, and nobody else gets them.
func TestDevicesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, pod := &checkpointtest.Disk{}, newDevicesPod("p", "main=1")
		n := devicesStart(t, store)
		if !n.FreshDevices() {
			t.Error("no plugin has ever come")
		}
		n.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a", "b")...))
		n.wantAdmitted(pod)
		n.stop()

		n = devicesStart(t, store, pod)
		if n.FreshDevices() {
			t.Error("a plugin had come before the restart")
		}
		n.Adopt(pod)
		n.wantAdmitted(pod) // it runs, and needs no plugin
		wantWait(t, n.admit(newDevicesPod("q", "main=1")), "its plugin has not registered since the restart")
		again := devicetest.NewPlugin(devicetest.Healthy("a", "b")...)
		n.offer(thing, again)
		n.wantAdmitted(newDevicesPod("q", "main=1"))
		if _, err := n.BeforeCreate(t.Context(), part.Container{Pod: pod, Name: "main"}, nil); err != nil {
			t.Error(err)
		}
		if calls := again.Called(); calls != "allocate b" {
			t.Errorf("after the restart the plugin heard %q, want nothing of the pod that ran", calls)
		}
		if n.has("p", "main") != "a" || n.has("q", "main") != "b" {
			t.Errorf("p has %q, q has %q", n.has("p", "main"), n.has("q", "main"))
		}
		n.stop()
	})
}

// wantWait checks that a pod was told to wait for its devices.
func wantWait(t *testing.T, err error, message string) {
	t.Helper()
	var r *part.Rejection
	if !errors.As(err, &r) || r.Reason != resources.ReasonDevicesNotReady || !r.Waits() || !r.Outside || !strings.Contains(r.Message, message) {
		t.Errorf("%+v, want the pod to wait: %s", err, message)
	}
}

// The start of a container waits for a plugin for a second; the pod is synced
// again when the plugin is done, and no other call is made meanwhile.
func TestSlowPreStart(t *testing.T) {
	bubble(t, func() *devicetest.Plugin {
		p := devicetest.NewPlugin(devicetest.Healthy("a")...)
		p.Does.PreStart = true
		p.Starts = func(context.Context) error { time.Sleep(20 * time.Second); return nil }
		return p
	}, func(t *testing.T, n *devicesNode, p *devicetest.Plugin) {
		pod := newDevicesPod("p", "main=1")
		n.wantAdmitted(pod)
		p.Called()
		begin := time.Now()
		start := func() error {
			_, err := n.BeforeCreate(t.Context(), part.Container{Pod: pod, Name: "main"}, nil)
			return err
		}
		for range 2 {
			if err := start(); err == nil || !strings.Contains(err.Error(), "has not prepared the devices yet") {
				t.Errorf("start: %v", err)
			}
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("two starts waited %v", took)
		}
		n.wantCalls()
		time.Sleep(20 * time.Second)
		n.wantCalls("retry p")
		if err := start(); err != nil {
			t.Error(err)
		}
		if calls := p.Called(); calls != "prestart a" {
			t.Errorf("calls %q", calls)
		}
	})
}

// A start that failed is tried again when the plugin is back, and no call is
// under way when Run has returned.
func TestFailedPreStart(t *testing.T) {
	bubble(t, func() *devicetest.Plugin {
		p := devicetest.NewPlugin(devicetest.Healthy("a")...)
		p.Does.PreStart = true
		p.Starts = func(context.Context) error { return errors.New("it is dirty") }
		return p
	}, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
		pod := newDevicesPod("p", "main=1")
		n.wantAdmitted(pod)
		main := part.Container{Pod: pod, Name: "main"}
		if _, err := n.BeforeCreate(t.Context(), main, nil); err == nil || !strings.Contains(err.Error(), "it is dirty") {
			t.Errorf("start: %v", err)
		}
		next := devicetest.NewPlugin(devicetest.Healthy("a")...)
		next.Does.PreStart, next.Starts = true, devicetest.Hang
		n.offer(thing, next)
		n.wantCalls("retry p", "readmit")
		if _, err := n.BeforeCreate(t.Context(), main, nil); err == nil {
			t.Error("a start did not wait for its plugin")
		}
		n.stop()
		if _, err := n.BeforeCreate(t.Context(), part.Container{Pod: pod, Name: "main"}, nil); err == nil {
			t.Error("a start after the end")
		}
	})
}

// A container that has no record of its devices gets new ones, and is made with
// them the next time.
func TestStartWithoutRecord(t *testing.T) {
	bubble(t, func() *devicetest.Plugin { return devicetest.NewPlugin(devicetest.Healthy("a")...) }, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
		pod := newDevicesPod("p", "main=1")
		in := podspec.Input{}
		if err := n.Compile(pod, &in); err != nil || len(in.Attached) != 0 {
			t.Errorf("attached %v, %v", in.Attached, err)
		}
		main := part.Container{Pod: pod, Name: "main"}
		if _, err := n.BeforeCreate(t.Context(), main, nil); err == nil || !strings.Contains(err.Error(), "the next sync uses the new ones") {
			t.Errorf("first start: %v", err)
		}
		if _, err := n.BeforeCreate(t.Context(), main, nil); err != nil || n.has("p", "main") != "a" {
			t.Errorf("second start: %v, with %q", err, n.has("p", "main"))
		}
	})
}

// Devices that a failed start gives back do not have it tried again at once.
func TestStartThatCannotAllocate(t *testing.T) {
	bubble(t, func() *devicetest.Plugin {
		p := devicetest.NewPlugin(devicetest.Healthy("a")...)
		p.Allocates = func(context.Context) error { return errors.New("it is dirty") }
		return p
	}, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
		main := part.Container{Pod: newDevicesPod("p", "main=1"), Name: "main"}
		if _, err := n.BeforeCreate(t.Context(), main, nil); err == nil || !strings.Contains(err.Error(), "it is dirty") {
			t.Errorf("start: %v", err)
		}
		n.wantCalls("readmit")
	})
}

func TestLostPluginIsRecorded(t *testing.T) {
	bubble(t, func() *devicetest.Plugin { return devicetest.NewPlugin(devicetest.Healthy("a")...) }, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
		synctest.Wait()
		n.m.Withdraw(thing)
		synctest.Wait()
		facts := n.host.Recorded()
		if len(facts) == 0 {
			t.Fatal("nothing is recorded")
		}
		if got, ok := facts[len(facts)-1].(*record.Plugin); !ok || *got != (record.Plugin{Name: thing, Gone: true}) {
			t.Errorf("recorded %+v", facts[len(facts)-1])
		}
	})
}
