package resources_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/topology"
)

// What cannot be had is said in the kubelet's words.
func TestRejections(t *testing.T) {
	refuses := func(context.Context) error { return errors.New("it is dirty") }
	for _, tt := range []struct {
		name     string
		wish     string
		allocate func(context.Context) error
		want     part.Rejection // the time does not count
	}{
		{"too many", "main=3", nil, part.Rejection{
			Reason: topology.ReasonUnexpected, Message: "Allocate failed due to requested number of devices unavailable for example.com/thing. Requested: 3, Available: 2, which is unexpected",
		}},
		{"the plugin refuses", "main=1", refuses, part.Rejection{
			Reason: topology.ReasonUnexpected, Message: "Allocate failed due to plugin of example.com/thing: Allocate: it is dirty, which is unexpected", Final: true,
		}},
		{"the plugin hangs", "main=1", devicetest.Hang, part.Rejection{
			Reason:  topology.ReasonUnexpected,
			Message: "Allocate failed due to plugin of example.com/thing: Allocate: context deadline exceeded, which is unexpected", Final: true,
		}},
		{"nobody offers it", "main=1@example.com/other", nil, part.Rejection{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func() *devicetest.Plugin {
				p := devicetest.NewPlugin(devicetest.Healthy("a", "b")...)
				p.Allocates = tt.allocate
				return p
			}, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
				err := n.admit(newDevicesPod("p", tt.wish))
				var got part.Rejection
				if r := (*part.Rejection)(nil); errors.As(err, &r) {
					got = *r
				}
				if got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
				if used := n.Resources()[thing].Used; used != 0 {
					t.Errorf("%d devices are used by nobody", used)
				}
			})
		})
	}
}

// A pod waits for a plugin that went away. A scheduler's pod is rejected after the grace period.
func TestPluginAway(t *testing.T) {
	bubble(t, func() *devicetest.Plugin { return devicetest.NewPlugin(devicetest.Healthy("a")...) }, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
		n.m.Withdraw(thing)
		n.wantCalls("readmit")
		wantWait(t, n.admit(newDevicesPod("p", "main=1")), "its plugin was withdrawn")
		time.Sleep(5 * time.Minute)
		n.wantCalls("readmit")
		wantWait(t, n.admit(newDevicesPod("p", "main=1")), thing+": its plugin was withdrawn")
		scheduled := newDevicesPod("p", "main=1")
		scheduled.Annotations = map[string]string{podmeta.AnnotationSource: podmeta.SourceAPI}
		var r *part.Rejection
		if err := n.admit(scheduled); !errors.As(err, &r) || r.Waits() || !strings.Contains(r.Message, "no healthy devices") {
			t.Errorf("%+v", err)
		}
	})
}

// Of two reservations of one device the second is to be made anew. What is
// released can be had by others.
func TestChangedMeanwhile(t *testing.T) {
	bubble(t, func() *devicetest.Plugin { return devicetest.NewPlugin(devicetest.Healthy("a")...) }, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
		reserve := func(name string) part.Reservation {
			t.Helper()
			pod := newDevicesPod(name, "main=1")
			n.Waits(pod)
			r, no := n.Reserve(t.Context(), part.Request{Pod: pod})
			if no != nil {
				t.Fatal(no)
			}
			if why := n.Explain(pod); !strings.HasPrefix(why, "its devices: their plugins are asked since ") {
				t.Errorf("why: %q", why)
			}
			a := r.(part.Aligned)
			chosen, err := a.Provider().Allocate(0, numa.Hint{})
			if err != nil {
				t.Fatal(err)
			}
			a.Align(chosen)
			return r
		}
		first, second := reserve("first"), reserve("second")
		if err := first.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		if err := second.Commit(t.Context()); !errors.Is(err, part.ErrChanged) {
			t.Errorf("commit of a device that is taken: %v", err)
		}
		if why := n.Explain(newDevicesPod("second")); why != "" {
			t.Errorf("why: %q", why)
		}
		second.Release()
		if n.has("first", "main") != "a" {
			t.Errorf("the first has %q", n.has("first", "main"))
		}
		first.Release()
		n.wantCalls("readmit")
		n.wantAdmitted(newDevicesPod("third", "main=1"))
	})
}

// A pod that had its devices before it was asked about keeps them when another
// part rejects it for now.
func TestReleaseOfWhatThePodHad(t *testing.T) {
	bubble(t, func() *devicetest.Plugin { return devicetest.NewPlugin(devicetest.Healthy("a")...) }, func(t *testing.T, n *devicesNode, p *devicetest.Plugin) {
		pod := newDevicesPod("p", "main=1")
		n.wantAdmitted(pod)
		p.Called()
		if n.Waits(pod) {
			t.Error("plugins are to be asked again")
		}
		r, no := n.Reserve(t.Context(), part.Request{Pod: pod})
		if no != nil {
			t.Fatal(no)
		}
		if err := r.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		r.Release()
		if n.has("p", "main") != "a" || p.Called() != "" {
			t.Errorf("the pod has %q", n.has("p", "main"))
		}
	})
}

// A plugin that comes between Waits and Reserve is not asked on the loop.
func TestPluginComesOnTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := devicesStart(t, &checkpointtest.Disk{})
		pod := newDevicesPod("p", "main=1")
		if n.Waits(pod) {
			t.Error("there is nobody to wait for")
		}
		n.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a")...))
		n.host.Calls()
		_, no := n.Reserve(t.Context(), part.Request{Pod: pod})
		wantWait(t, no, "came just now")
		n.wantCalls("readmit")
		n.wantAdmitted(pod)
		n.stop()
	})
}

// topologyOf lets devices of one NUMA node only go together.
func topologyOf(t *testing.T) *topology.Manager {
	t.Helper()
	policy, err := topology.NewPolicy(topology.NameSingleNUMANode, numa.Uniform(2, 1, 4, 1, 4<<30), topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := topology.New(topology.Config{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Another part decides on NUMA nodes; what goes wrong with a plugin meanwhile
// comes out of its decision as a rejection.
func TestAligned(t *testing.T) {
	near := func(id string, node int) devicemgr.Device {
		return devicemgr.Device{ID: id, Healthy: true, Nodes: numa.Nodes(node)}
	}
	for _, tt := range []struct {
		name   string
		prefer func(n *devicesNode) error
		want   string // devices, or the rejection
	}{
		{"chosen", func(*devicesNode) error { return nil }, "b,c"},
		{"the plugin refuses", func(*devicesNode) error { return errors.New("no idea") }, "UnexpectedAdmissionError waits=false final=true"},
		{"it goes away", func(n *devicesNode) error { n.m.Withdraw(thing); return errors.New("gone") }, "DevicesNotReady waits=true final=false"},
		{"another takes over", func(n *devicesNode) error {
			next := devicetest.NewPlugin(devicetest.Healthy("x")...)
			err := n.m.Offer(context.Background(), thing, next)
			synctest.Wait()
			return errors.Join(err, errors.New("replaced"))
		}, "DevicesNotReady waits=true final=false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var self *devicesNode
			bubble(t, func() *devicetest.Plugin {
				p := devicetest.NewPlugin(near("a", 0), near("b", 1), near("c", 1), near("d", 1))
				p.Does.Prefer = true
				p.Chooses = func([]string) ([]string, error) { return []string{"b", "c"}, tt.prefer(self) }
				return p
			}, func(t *testing.T, n *devicesNode, _ *devicetest.Plugin) {
				self = n
				pod := newDevicesPod("p", "main=2")
				n.Waits(pod)
				r, no := n.Reserve(t.Context(), part.Request{Pod: pod})
				if no != nil {
					t.Fatal(no)
				}
				a := r.(part.Aligned)
				d, err := topologyOf(t).Admit(fit.Pod(pod), []topology.Provider{a.Provider()})
				var got string
				if no := (*part.Rejection)(nil); errors.As(err, &no) {
					got = fmt.Sprintf("%s waits=%v final=%v", no.Reason, no.Waits(), no.Final)
				} else if err != nil {
					t.Fatal(err)
				} else {
					a.Align(d.Providers[0])
					if err := r.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
					got = n.has("p", "main")
				}
				if got != tt.want {
					t.Errorf("%s, want %s (%v)", got, tt.want, err)
				}
			})
		})
	}
}

// A dry run shows what would be chosen, and takes nothing.
func TestShowFit(t *testing.T) {
	bubble(t, func() *devicetest.Plugin { return devicetest.NewPlugin(devicetest.Healthy("a", "b")...) }, func(t *testing.T, n *devicesNode, p *devicetest.Plugin) {
		dry := func(wish string) local.Fit {
			r, no := n.Reserve(t.Context(), part.Request{Pod: newDevicesPod("p", wish, "other"), DryRun: true})
			if no != nil {
				t.Fatal(no)
			}
			f := local.Fit{Fits: true}
			r.(interface{ ShowFit(*local.Fit) }).ShowFit(&f)
			return f
		}
		f := dry("main=2")
		if !f.Fits || len(f.Containers) != 2 || !slices.Equal(f.Containers[0].Devices[thing], []string{"a", "b"}) || f.Containers[1].Devices != nil {
			t.Errorf("%+v", f)
		}
		if f := dry("main=3"); f.Fits || f.Reason != topology.ReasonUnexpected || len(f.Containers) > 0 {
			t.Errorf("%+v", f)
		}
		if n.Resources()[thing].Used != 0 || p.Called() != "" {
			t.Error("a dry run took devices")
		}
	})
}
