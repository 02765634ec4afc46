package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/podmgr"
)

// A pod that a scheduler has given the node does not wait for a resource that
// nobody here offers, unless the Node object says how much of it there is.
func TestResourcesThatTheNodeDoesNotOffer(t *testing.T) {
	const fleet, patched = "example.com/fleet-licence", "example.com/dongle"
	for _, devices := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			if devices {
				n.devices = newFakeDevices()
			}
			api := newAPISource()
			n.more = []podmgr.Source{api}
			n.configure = func(cfg *agent.Config) {
				cfg.Cluster.NodeResources = func() v1.ResourceList { return v1.ResourceList{patched: resource.MustParse("2")} }
			}
			l := n.start()
			api.tell(newPod("clusters", wants("c", fleet, "5")), newPod("first", wants("c", patched, "1")),
				newPod("second", wants("c", patched, "1")), newPod("third", wants("c", patched, "1")))
			settle()
			for _, name := range []string{"clusters", "first", "second"} {
				l.wantPhase(name, v1.PodRunning)
			}
			if st := l.pod("third").Status; st.Phase != v1.PodFailed || st.Reason != "OutOf"+patched || !strings.Contains(st.Message, "used: 2, capacity: 2") {
				t.Errorf("devices %t: status %+v", devices, st)
			}
			l.stop()
		})
	}
}

// A plugin that was here is waited for, whoever the pod comes from.
func TestAPluginThatIsAwayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		api := newAPISource()
		n.more = []podmgr.Source{api}
		l := n.start()
		api.tell()
		settle()
		if !l.FreshDevices() {
			t.Error("a node without plugins has devices of an earlier life")
		}
		l.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a")...))
		api.tell(newPod("first", wants("c", thing, "1")))
		settle()
		l.wantPhase("first", v1.PodRunning)
		l.stop()

		l = n.start()
		api.tell(newPod("first", wants("c", thing, "1")), newPod("second", wants("c", thing, "1")))
		settle()
		if l.FreshDevices() {
			t.Error("the devices of an earlier life are not known")
		}
		if st := l.pod("second").Status; st.Phase != v1.PodPending {
			t.Errorf("status %+v", st)
		}
		l.stop()
	})
}

func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		api := newAPISource()
		n.more = []podmgr.Source{api}
		l := n.start()
		settle()
		select {
		case <-l.Settled():
			t.Error("settled before every source has listed its pods")
		default:
		}
		api.tell()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		select {
		case <-l.Settled():
		default:
			t.Error("not settled although every source has listed its pods")
		}
		if l.FreshDevices() {
			t.Error("an agent without Devices says what is of others")
		}
		l.stop()
	})
}
