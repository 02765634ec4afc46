package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

func deviceNode(t *testing.T) *node {
	n := newNode(t)
	n.devices = newFakeDevices()
	return n
}

// config is what a container was made with.
func (n *node) config(name string) *runtimeapi.ContainerConfig {
	n.t.Helper()
	n.devices.mu.Lock()
	defer n.devices.mu.Unlock()
	for _, conf := range slices.Backward(n.devices.made) {
		if conf.GetMetadata().GetName() == name {
			return conf
		}
	}
	n.t.Fatalf("container %s was not made", name)
	return nil
}

func (n *node) env(name, key string) string {
	n.t.Helper()
	for _, e := range n.config(name).GetEnvs() {
		if e.GetKey() == key {
			return string(e.GetValue())
		}
	}
	return ""
}

func (l *life) why(name string) string { return l.Why(l.pod(name)).WaitingFor }

// A container has what its plugin says, and its status how the device is.
func TestDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		n.metrics = prometheus.NewRegistry()
		l := n.start()
		p := devicetest.NewPlugin(devicetest.Healthy("a", "b")...)
		p.Does = devicemgr.Options{PreStart: true}
		l.offer(thing, p)
		n.want = []*v1.Pod{newPod("p", wants("c", thing, "1"), runs("other"))}
		l.tell()
		settle()
		l.wantPhase("p", v1.PodRunning)
		conf := n.config("c")
		if n.env("c", "DEVICES") != "a" || n.env("other", "DEVICES") != "" {
			t.Errorf("variables %v", conf.GetEnvs())
		}
		if d := conf.GetDevices(); len(d) != 1 || d[0].GetContainerPath() != "/dev/thing" || d[0].GetPermissions() != "rw" {
			t.Errorf("devices %v", d)
		}
		if !slices.ContainsFunc(conf.GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == "/lib/things" && m.GetReadonly() }) {
			t.Errorf("mounts %v", conf.GetMounts())
		}
		if conf.GetAnnotations()["example.com/from"] != "plugin" || len(conf.GetCDIDevices()) != 1 {
			t.Errorf("annotations %v, CDI %v", conf.GetAnnotations(), conf.GetCDIDevices())
		}
		if p.Count("prestart a") != 1 {
			t.Errorf("calls %v", p.Called())
		}
		capacity, allocatable := l.Resources()
		if c, a := capacity[thing], allocatable[thing]; c.Value() != 2 || a.Value() != 2 {
			t.Errorf("capacity %v, allocatable %v", c.Value(), a.Value())
		}
		health := func() v1.ResourceHealthStatus {
			for _, c := range l.pod("p").Status.ContainerStatuses {
				if c.Name == "c" && len(c.AllocatedResourcesStatus) == 1 && c.AllocatedResourcesStatus[0].Name == thing {
					return c.AllocatedResourcesStatus[0].Resources[0].Health
				}
			}
			return "not told"
		}
		if h := health(); h != v1.ResourceHealthStatusHealthy {
			t.Errorf("health %s", h)
		}

		// The device falls ill: the status reports at once, the container runs on.
		p.Lists <- []devicemgr.Device{{ID: "a"}, {ID: "b", Healthy: true}}
		settle()
		if h := health(); h != v1.ResourceHealthStatusUnhealthy {
			t.Errorf("health %s of an unhealthy device", h)
		}

		// Each start is told to the plugin.
		n.rt.Kill(n.id("c"))
		settle()
		if p.Count("prestart a") != 2 || p.Count("allocate") != 1 {
			t.Errorf("calls %v", p.Called())
		}

		// What it had is free when it has ended.
		if used := n.devices.current.Capacity()[thing].Used; used != 1 {
			t.Errorf("%d devices are used", used)
		}
		n.want = nil
		l.tell()
		settle()
		if used := n.devices.current.Capacity()[thing].Used; used != 0 {
			t.Errorf("%d devices are used by nobody", used)
		}
		if keys, _ := n.devices.Keys(); !slices.Equal(keys, []string{"resources"}) {
			t.Errorf("stored: %v", keys)
		}
		n.wantNothingLeft()
		l.stop()
	})
}

// What cannot be had is said with the kubelet's reasons; what may come is waited
// for, and taken at once when it does.
func TestDevicesThatAreShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a")...))
		n.want = []*v1.Pod{newPod("first", wants("c", thing, "1"))}
		l.tell()
		settle()
		n.want = append(n.want, newPod("second", wants("c", thing, "1")), newPod("unknown", wants("c", "example.com/other", "1")))
		l.tell()
		settle()
		if st := l.pod("second").Status; st.Phase != v1.PodFailed || st.Reason != "OutOf"+thing || !strings.Contains(st.Message, "used: 1, capacity: 1") {
			t.Errorf("status %+v", st)
		}
		if st := l.pod("unknown").Status; st.Phase != v1.PodPending || st.Reason != "OutOfexample.com/other" || !strings.Contains(l.why("unknown"), "example.com/other: no device plugin has offered it") {
			t.Errorf("status %+v, why %q", st, l.why("unknown"))
		}

		// One that is ending gives its device to one that waits.
		n.rt.Delay("StopContainer", 3*time.Second)
		n.want = []*v1.Pod{newPod("third", wants("c", thing, "1")), n.want[2]}
		l.tell()
		time.Sleep(time.Second)
		if st := l.pod("third").Status; st.Phase != v1.PodPending || !strings.Contains(st.Message, "it waits for the end of default/first") {
			t.Errorf("status %+v", st)
		}
		time.Sleep(10 * time.Second)
		settle()
		l.wantPhase("third", v1.PodRunning)

		// A plugin that was never here comes after all.
		l.offer("example.com/other", devicetest.NewPlugin(devicetest.Healthy("x")...))
		settle()
		l.wantPhase("unknown", v1.PodRunning)
		l.stop()
	})
}

// A pod without a scheduler waits for a plugin that was never here, and for a device that is not
// plugged in, and runs as soon as it can.
func TestDevicesThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		n.want = []*v1.Pod{newPod("p", wants("c", thing, "1"))}
		l.tell()
		waits := func(why string) {
			t.Helper()
			time.Sleep(time.Hour)
			if st := l.pod("p").Status; st.Phase != v1.PodPending || st.Reason != "OutOf"+thing || !strings.Contains(l.why("p"), why) {
				t.Errorf("status %+v, why %q", st, l.why("p"))
			}
		}
		waits(thing + ": no device plugin has offered it")
		plugin := devicetest.NewPlugin()
		l.offer(thing, plugin)
		waits(thing + ": the node has 0 healthy devices")
		plugin.Lists <- devicetest.Healthy("a")
		settle()
		l.wantPhase("p", v1.PodRunning)
		l.stop()
	})
}

// A machine boots: the agent is there before the plugin that it knows of. The pod
// waits, and runs as soon as the plugin has come, even if that is late.
func TestDevicesAfterABoot(t *testing.T) {
	for name, late := range map[string]bool{"the plugin comes": false, "the plugin comes late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := deviceNode(t)
				n.sink = &follower{} // which remembers nothing
				n.want = []*v1.Pod{newPod("p", wants("c", thing, "1")), newPod("q", runs("q"))}
				l := n.start()
				l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a")...))
				settle()
				l.wantPhase("p", v1.PodRunning)
				l.stop()
				n.rt = critest.New()
				n.rt.AddImage(image)

				l = n.start()
				time.Sleep(30 * time.Second)
				settle()
				l.wantPhase("q", v1.PodRunning)
				st := l.pod("p").Status
				if st.Phase != v1.PodPending || st.Reason != "DevicesNotReady" || !strings.Contains(st.Message, "its plugin has not registered since the restart") {
					t.Errorf("status %+v", st)
				}
				if why := l.why("p"); !strings.Contains(why, "example.com/thing: its plugin has not registered since") {
					t.Errorf("why: %q", why)
				}
				if f := l.Fit(newPod("dry", wants("c", thing, "1"))); f.Fits || f.Reason != "DevicesNotReady" || f.RetryUntil.IsZero() {
					t.Errorf("fit %+v", f)
				}
				if late {
					time.Sleep(time.Hour)
					l.wantPhase("p", v1.PodPending)
				}
				l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a")...))
				synctest.Wait()
				time.Sleep(50 * time.Millisecond) // it is not looked for at intervals
				l.wantPhase("p", v1.PodRunning)
				for _, e := range l.Events(l.pod("p")) {
					if e.Reason == topology.ReasonUnexpected {
						t.Errorf("event %s: %s", e.Reason, e.Message)
					}
				}
				l.stop()
			})
		})
	}
}

// The agent is restarted, before its plugin and after it: a container that runs
// keeps its device and is not touched, and nobody else gets that.
func TestDevicesOverRestarts(t *testing.T) {
	for name, pluginFirst := range map[string]bool{"plugin first": true, "agent first": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := deviceNode(t)
				n.want = []*v1.Pod{newPod("p", wants("c", thing, "1"))}
				l := n.start()
				l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a", "b")...))
				settle()
				id := n.id("c")
				l.stop()

				n.rt.ForgetCalls()
				n.want = append(n.want, newPod("new", wants("d", thing, "1")))
				l = n.start()
				p := devicetest.NewPlugin(devicetest.Healthy("a", "b")...)
				if pluginFirst {
					l.offer(thing, p)
				}
				settle()
				l.wantPhase("p", v1.PodRunning)
				if !pluginFirst {
					l.wantPhase("new", v1.PodPending)
					if h := n.devices.current.Health("uid-p", "c"); len(h) != 1 || h[0].Resources[0].Health != v1.ResourceHealthStatusUnknown {
						t.Errorf("health %v without a plugin", h)
					}
					l.offer(thing, p)
					settle()
				}
				l.wantPhase("new", v1.PodRunning)
				if n.env("d", "DEVICES") != "b" || p.Count("allocate") != 1 {
					t.Errorf("the new pod has %q; calls %v", n.env("d", "DEVICES"), p.Called())
				}
				if n.id("c") != id {
					t.Error("the container that ran was replaced")
				}

				// It can be restarted with what it has.
				n.rt.Kill(id)
				settle()
				if n.env("c", "DEVICES") != "a" || p.Count("allocate") != 1 {
					t.Errorf("the container has %q after its restart; calls %v", n.env("c", "DEVICES"), p.Called())
				}
				l.stop()
			})
		})
	}
}

// A plugin that hangs delays the pod that wants its device, and nobody else.
func TestPluginThatHangsInAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		bad := devicetest.NewPlugin(devicetest.Healthy("x")...)
		bad.Allocates = devicetest.Hang
		l.offer("example.com/bad", bad)
		l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a", "b")...))
		n.want = []*v1.Pod{newPod("hangs", wants("c", "example.com/bad", "1")), newPod("good", wants("g", thing, "1")), newPod("plain", runs("p"))}
		l.tell()
		settle()
		l.wantPhase("good", v1.PodRunning)
		l.wantPhase("plain", v1.PodRunning)
		l.wantPhase("hangs", v1.PodPending)
		if why := l.why("hangs"); !strings.Contains(why, "its devices: their plugins are asked since") {
			t.Errorf("why: %q", why)
		}
		// Neither do others that come later, nor another one of the bad plugin's.
		n.want = append(n.want, newPod("later", wants("l", thing, "1")))
		l.tell()
		settle()
		l.wantPhase("later", v1.PodRunning)
		time.Sleep(30 * time.Second)
		settle()
		if st := l.pod("hangs").Status; st.Phase != v1.PodFailed || st.Reason != topology.ReasonUnexpected || !strings.Contains(st.Message, "plugin of example.com/bad: Allocate") {
			t.Errorf("status %+v", st)
		}
		if c := n.devices.current.Capacity()["example.com/bad"]; c.Used != 0 {
			t.Errorf("the device of a pod that was rejected is used: %+v", c)
		}
		l.stop()
	})
}

// A pod that goes, or goes and comes again, while its plugin hangs leaves nothing
// and is admitted afresh.
func TestPodThatGoesWhileItIsDecidedOn(t *testing.T) {
	for name, again := range map[string]bool{"it goes": false, "it comes again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := deviceNode(t)
				l := n.start()
				p := devicetest.NewPlugin(devicetest.Healthy("a")...)
				slow := 10 * time.Second
				p.Allocates = func(context.Context) error { time.Sleep(slow); return nil } // it heeds no ctx
				l.offer(thing, p)
				pod := newPod("p", wants("c", thing, "1"))
				n.want = []*v1.Pod{pod}
				l.tell()
				settle()
				n.want = nil
				l.tell()
				settle()
				slow = 0
				if again {
					n.want = []*v1.Pod{pod}
					l.tell()
				}
				settle()
				if again {
					l.wantPhase("p", v1.PodPending)
				}
				time.Sleep(10 * time.Second)
				settle()
				if again {
					l.wantPhase("p", v1.PodRunning)
					if p.Count("allocate") != 2 {
						t.Errorf("calls %v", p.Called())
					}
				}
				n.want = nil
				l.tell()
				settle()
				time.Sleep(time.Minute)
				if used := n.devices.current.Capacity()[thing].Used; used != 0 {
					t.Errorf("%d devices are used by nobody", used)
				}
				n.wantNothingLeft()
				l.stop()
			})
		})
	}
}

// While a pod is being decided on it counts: one that would only fit without it
// waits, and has the room if it does not come.
func TestRoomOfAPodThatIsDecidedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		p := devicetest.NewPlugin(devicetest.Healthy("a")...)
		p.Allocates = devicetest.Hang
		l.offer(thing, p)
		first := wants("f", thing, "1")
		big := sized("f", "2", "64Mi")
		first.Resources.Limits[v1.ResourceCPU] = big.Resources.Limits[v1.ResourceCPU]
		first.Resources.Requests = first.Resources.Limits
		n.want = []*v1.Pod{newPod("first", first)}
		l.tell()
		settle()
		n.want = append(n.want, newPod("second", sized("s", "1", "64Mi")))
		l.tell()
		settle()
		if st := l.pod("second").Status; st.Phase != v1.PodPending || st.Reason != "OutOfcpu" {
			t.Errorf("status %+v", st)
		}
		time.Sleep(30 * time.Second)
		settle()
		l.wantPhase("first", v1.PodFailed)
		l.wantPhase("second", v1.PodRunning)
		l.stop()
	})
}

// Devices, CPUs and memory go together or not at all.
func TestDevicesInPlacement(t *testing.T) {
	for name, placesCPUs := range map[string]bool{"with CPUs": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := deviceNode(t)
				n.cpus = "8"
				m := numa.Uniform(2, 1, 4, 1, 4<<30)
				n.devices.machine = m
				n.placement = fit.PlacementConfig{Machine: m, TopologyPolicy: topology.NameSingleNUMANode}
				if placesCPUs {
					n.placement.CPUPolicy, n.placement.ReservedCPUs = fit.CPUStatic, cpumgr.Reservation{CPUs: numa.CPUs(0)}
				}
				l := n.start()
				l.offer(thing, devicetest.NewPlugin(
					devicemgr.Device{ID: "a", Healthy: true, Nodes: numa.Nodes(0)},
					devicemgr.Device{ID: "b", Healthy: true, Nodes: numa.Nodes(1)}, devicemgr.Device{ID: "c", Healthy: true, Nodes: numa.Nodes(1)},
				))
				settle()
				two := sized("two", "2", "64Mi")
				two.Resources.Limits[thing] = wants("", thing, "2").Resources.Limits[thing]
				two.Resources.Requests = two.Resources.Limits
				dry := l.Fit(newPod("dry", two))
				if len(dry.Containers) != 1 || !slices.Equal(dry.Containers[0].Devices[thing], []string{"b", "c"}) || dry.Containers[0].Hint.Nodes != "1" {
					t.Errorf("fit %+v", dry)
				}
				n.want = []*v1.Pod{newPod("p", two)}
				l.tell()
				settle()
				l.wantPhase("p", v1.PodRunning)
				if got := n.env("two", "DEVICES"); got != "b,c" {
					t.Errorf("devices %q, want those of one node", got)
				}
				if got := n.cpusets()["two"]; placesCPUs && got != "4-5" {
					t.Errorf("CPUs %q, want some of node 1", got)
				}

				// One on each node is not one node.
				n.want = nil
				l.tell()
				settle()
				three := two.DeepCopy()
				three.Name, three.Resources.Limits = "three", wants("", thing, "3").Resources.Limits
				three.Resources.Requests = three.Resources.Limits
				n.want = []*v1.Pod{newPod("q", *three)}
				l.tell()
				settle()
				if st := l.pod("q").Status; st.Phase != v1.PodFailed || st.Reason != topology.ReasonAffinity {
					t.Errorf("status %+v", st)
				}
				if used := n.devices.current.Capacity()[thing].Used; used != 0 {
					t.Errorf("%d devices are used by nobody", used)
				}
				l.stop()
			})
		})
	}
}

// A plugin refuses: the pod has nothing, its CPUs neither.
func TestPluginThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.devices = newFakeDevices()
		l := n.start()
		p := devicetest.NewPlugin(devicetest.Healthy("a")...)
		p.Allocates = func(context.Context) error { return errors.New("it is dirty") }
		l.offer(thing, p)
		c := sized("c", "7", "64Mi")
		c.Resources.Limits[thing] = wants("", thing, "1").Resources.Limits[thing]
		c.Resources.Requests = c.Resources.Limits
		n.want = []*v1.Pod{newPod("p", c)}
		l.tell()
		settle()
		if st := l.pod("p").Status; st.Phase != v1.PodFailed || st.Reason != topology.ReasonUnexpected || !strings.Contains(st.Message, "it is dirty") {
			t.Errorf("status %+v", st)
		}
		n.want = append(n.want, own("q", "7"))
		l.tell()
		settle()
		l.wantPhase("q", v1.PodRunning)
		l.stop()
	})
}

// A plugin that makes devices ready slowly, or is away, delays the start of the
// containers that have them; those of other pods start meanwhile.
func TestSlowPreStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		p := devicetest.NewPlugin(devicetest.Healthy("a", "b", "c", "d", "e")...)
		p.Does = devicemgr.Options{PreStart: true}
		slow := 20 * time.Second
		p.Starts = func(ctx context.Context) error { time.Sleep(slow); return nil }
		l.offer(thing, p)
		for i := range 5 { // more than may start at a time
			n.want = append(n.want, newPod(fmt.Sprint("slow", i), wants(fmt.Sprint("s", i), thing, "1")))
		}
		n.want = append(n.want, newPod("other", runs("o")))
		l.tell()
		time.Sleep(5 * time.Second)
		l.wantPhase("other", v1.PodRunning)
		l.wantPhase("slow0", v1.PodPending)
		if st := l.pod("slow0").Status.ContainerStatuses[0].State.Waiting; st == nil || !strings.Contains(st.Message, "has not prepared the devices yet") {
			t.Errorf("state %+v", st)
		}
		time.Sleep(17 * time.Second)
		settle()
		for i := range 5 {
			l.wantPhase(fmt.Sprint("slow", i), v1.PodRunning)
		}
		if p.Count("prestart") != 5 {
			t.Errorf("calls %v", p.Called())
		}

		// It goes away; a container that restarts waits for it to come back.
		slow = 0
		close(p.Lists)
		settle()
		n.rt.Kill(n.id("s0"))
		settle()
		if st := l.pod("slow0").Status.ContainerStatuses[0].State.Waiting; st == nil || !strings.Contains(st.Message, "a container that restarts") {
			t.Errorf("state %+v", st)
		}
		time.Sleep(40 * time.Second)
		next := devicetest.NewPlugin(devicetest.Healthy("a", "b", "c", "d", "e")...)
		next.Does = devicemgr.Options{PreStart: true}
		l.offer(thing, next)
		settle()
		l.wantPhase("slow0", v1.PodRunning)
		if _, running := n.containers(); running["slow0/s0"] != 1 {
			t.Error("the container was not started when the plugin was back")
		}
		l.stop()
	})
}

// Init containers hand their devices on.
func TestDevicesOfInitContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		p := devicetest.NewPlugin(devicetest.Healthy("a", "b")...)
		p.Does, p.Chooses = devicemgr.Options{Prefer: true}, func(all []string) ([]string, error) { return all[len(all)-1:], nil }
		l.offer(thing, p)
		pod := newPod("p", wants("c", thing, "1"))
		init := wants("i", thing, "1")
		init.Args = []string{"exit", "0"}
		pod.Spec.InitContainers = []v1.Container{init}
		n.want = []*v1.Pod{pod}
		l.tell()
		settle()
		l.wantPhase("p", v1.PodRunning)
		if i, c := n.env("i", "DEVICES"), n.env("c", "DEVICES"); i != "b" || c != "b" {
			t.Errorf("devices %q and %q, want b, as the plugin likes, for both", i, c)
		}
		l.stop()
	})
}

// A pod that is rejected after a restart gives back the devices of before, although its source
// names it still: it has no worker that would tell the parts of its end.
func TestDevicesOfRejectedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a", "b")...))
		c := wants("c", thing, "2")
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		n.want = []*v1.Pod{newPod("p", c)}
		l.tell()
		settle()
		l.wantPhase("p", v1.PodRunning)
		l.stop()
		boxes, _ := n.rt.ListPodSandbox(t.Context(), nil)
		_ = n.rt.StopPodSandbox(t.Context(), boxes[0].GetId()) // as with a boot

		n.cpus = "1" // after the boot
		l = n.start()
		l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a", "b")...))
		time.Sleep(time.Minute)
		l.wantPhase("p", v1.PodFailed)
		n.want = append(n.want, newPod("next", wants("d", thing, "2")))
		l.tell()
		settle()
		l.wantPhase("next", v1.PodRunning)
		if used := n.devices.current.Capacity()[thing].Used; used != 2 {
			t.Errorf("%d devices are used", used)
		}
		l.stop()
	})
}
