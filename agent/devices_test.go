package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cpumgr"
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
