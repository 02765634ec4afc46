package podstatus

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

func TestAddresses(t *testing.T) {
	type ips = []string
	previous := func(list ...string) *v1.PodStatus {
		st := &v1.PodStatus{}
		for _, ip := range list {
			st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
		}
		if len(list) > 0 {
			st.PodIP = list[0]
		}
		return st
	}
	for _, tc := range []struct {
		name        string
		hostNetwork bool
		host        ips
		sandbox     *observed.Sandbox
		previous    *v1.PodStatus
		want        string
	}{
		{name: "no sandbox yet", host: ips{"192.0.2.1"}, want: ""},
		{name: "the node's family first", host: ips{"192.0.2.1", "2001:db8::1"}, sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"fd00::1", "10.0.0.1"}}, want: "10.0.0.1 fd00::1"},
		{name: "a node of the other family", host: ips{"2001:db8::1"}, sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"10.0.0.1", "fd00::1"}}, want: "fd00::1 10.0.0.1"},
		{name: "one of each", host: ips{"192.0.2.1"}, sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}}, want: "10.0.0.1 fd00::1"},
		{name: "none of the node's family", host: ips{"192.0.2.1"}, sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"fd00::1", "fd00::2"}}, want: "fd00::1"},
		{name: "a node without addresses", sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"fd00::1", "10.0.0.1"}}, want: "10.0.0.1 fd00::1"},
		{name: "written as the API has them", host: ips{"2001:db8::1"}, sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"FD00:0::0001"}}, want: "fd00::1"},
		{name: "no addresses at all", host: ips{"192.0.2.1"}, sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"nonsense"}}, want: ""},
		{name: "the sandbox has others now", host: ips{"192.0.2.1"}, sandbox: &observed.Sandbox{State: observed.Running, IPs: ips{"10.0.0.2"}}, previous: previous("10.0.0.1"), want: "10.0.0.2"},
		{name: "the sandbox is dead", host: ips{"192.0.2.1"}, sandbox: &observed.Sandbox{State: observed.Exited}, previous: previous("10.0.0.1", "fd00::1"), want: "10.0.0.1 fd00::1"},
		{name: "the sandbox is gone", host: ips{"192.0.2.1"}, previous: previous("10.0.0.1"), want: "10.0.0.1"},
		{name: "the sandbox has none yet", host: ips{"192.0.2.1"}, sandbox: &observed.Sandbox{State: observed.Running}, previous: previous("10.0.0.1"), want: ""},

		{name: "host network", hostNetwork: true, host: ips{"192.0.2.1", "2001:db8::1"}, want: "192.0.2.1 2001:db8::1"},
		{name: "host network, one family", hostNetwork: true, host: ips{"192.0.2.1", "192.0.2.2"}, want: "192.0.2.1"},
		{name: "host network, no addresses", hostNetwork: true, want: ""},
		{name: "host network never changes", hostNetwork: true, host: ips{"192.0.2.9"}, previous: previous("192.0.2.1"), want: "192.0.2.1"},
		{name: "host network, nor its order", hostNetwork: true, host: ips{"192.0.2.9", "2001:db8::9"}, previous: previous("2001:db8::1", "192.0.2.1"), want: "2001:db8::1 192.0.2.1"},
		{name: "host network gets the second family", hostNetwork: true, host: ips{"192.0.2.9", "2001:db8::9"}, previous: previous("192.0.2.1"), want: "192.0.2.1 2001:db8::9"},
		{name: "host network loses the node's addresses", hostNetwork: true, previous: previous("192.0.2.1"), want: "192.0.2.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			p.Spec.HostNetwork = tc.hostNetwork
			obs := &observed.Pod{}
			if tc.sandbox != nil {
				obs.Sandboxes = []observed.Sandbox{*tc.sandbox}
			}
			st := Of(Input{Pod: p, Observed: obs, Previous: tc.previous, HostIPs: tc.host, Now: now})
			var got, host []string
			for _, ip := range st.PodIPs {
				got = append(got, ip.IP)
			}
			for _, ip := range st.HostIPs {
				host = append(host, ip.IP)
			}
			if strings.Join(got, " ") != tc.want || len(got) > 0 && st.PodIP != got[0] || len(got) == 0 && st.PodIP != "" {
				t.Errorf("addresses %v, first %q; want %q", got, st.PodIP, tc.want)
			}
			if strings.Join(host, " ") != strings.Join(tc.host, " ") || len(host) > 0 && st.HostIP != host[0] {
				t.Errorf("the node's addresses %v, first %q; want %v", host, st.HostIP, tc.host)
			}
		})
	}
}

// What becomes of the phase, and of the reason and the message that go with
// it. The pod's one container runs, or waits.
func TestPhaseReasonMessage(t *testing.T) {
	says := func(phase v1.PodPhase, reason, message string) v1.PodStatus {
		return v1.PodStatus{Phase: phase, Reason: reason, Message: message}
	}
	for _, tc := range []struct {
		name     string
		known    v1.PodStatus  // what the pod says
		previous *v1.PodStatus // what was computed last
		waits    bool
		want     v1.PodStatus
	}{
		{name: "new", want: says(v1.PodRunning, "", "")},
		{name: "Running may become Pending", known: says(v1.PodRunning, "", ""), waits: true, want: says(v1.PodPending, "", "")},
		{name: "reason and message stay with the phase", known: says(v1.PodRunning, "", ""), previous: &v1.PodStatus{Phase: v1.PodRunning, Reason: "r", Message: "m"}, want: says(v1.PodRunning, "r", "m")},
		{name: "they go with the phase", previous: &v1.PodStatus{Phase: v1.PodPending, Reason: "r", Message: "m"}, want: says(v1.PodRunning, "", "")},
		{name: "the pod's own, where nothing newer is said", known: says(v1.PodRunning, "r", "m"), previous: &v1.PodStatus{Phase: v1.PodRunning}, want: says(v1.PodRunning, "r", "m")},
		{name: "the newer goes first", known: says(v1.PodRunning, "old", "old"), previous: &v1.PodStatus{Phase: v1.PodRunning, Reason: "r", Message: "m"}, want: says(v1.PodRunning, "r", "m")},
		{name: "Failed stays", previous: &v1.PodStatus{Phase: v1.PodFailed, Reason: "r", Message: "m"}, want: says(v1.PodFailed, "r", "m")},
		{name: "Succeeded stays", previous: &v1.PodStatus{Phase: v1.PodSucceeded}, waits: true, want: says(v1.PodSucceeded, "", "")},
		{name: "Failed, as the pod says", known: says(v1.PodFailed, "r", "m"), previous: &v1.PodStatus{Phase: v1.PodRunning}, want: says(v1.PodFailed, "r", "m")},
		{name: "Succeeded, as the pod says, and not Failed", known: says(v1.PodSucceeded, "", ""), previous: &v1.PodStatus{Phase: v1.PodFailed, Reason: "r"}, want: says(v1.PodSucceeded, "", "")},
		{name: "Failed, as the pod says, and not Succeeded", known: says(v1.PodFailed, "r", "m"), previous: &v1.PodStatus{Phase: v1.PodSucceeded}, want: says(v1.PodFailed, "r", "m")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			p.Status = tc.known
			obs := &observed.Pod{}
			if !tc.waits {
				obs.Containers = []observed.Container{instance("1", observed.Running, 0, 0)}
			}
			st := Of(Input{Pod: p, Observed: obs, Previous: tc.previous, Now: now})
			if got := says(st.Phase, st.Reason, st.Message); got.Phase != tc.want.Phase || got.Reason != tc.want.Reason || got.Message != tc.want.Message {
				t.Errorf("%s %q %q, want %s %q %q", got.Phase, got.Reason, got.Message, tc.want.Phase, tc.want.Reason, tc.want.Message)
			}
		})
	}
}

// A static pod comes back, so the end of its containers is not its own.
func TestStaticPodsDoNotEndForGood(t *testing.T) {
	for _, tc := range []struct {
		policy v1.RestartPolicy
		static bool
		want   v1.PodPhase
	}{
		{always, false, v1.PodFailed},
		{always, true, v1.PodRunning},
		{onFailure, true, v1.PodRunning},
		{never, true, v1.PodFailed},
	} {
		p := podOf(tc.policy, nil, "c")
		if tc.static {
			p.Annotations = map[string]string{podmeta.AnnotationSource: "file"}
		}
		st := Of(Input{Pod: p, Terminal: true, Now: now, Observed: &observed.Pod{
			Containers: []observed.Container{instance("1", observed.Exited, 1, 0)},
		}})
		if st.Phase != tc.want {
			t.Errorf("%s, static %v: phase %s, want %s", tc.policy, tc.static, st.Phase, tc.want)
		}
	}
}

// A pod that may not run again, and has lost its sandbox before all of it had begun, fails.
func TestStrandedPodFails(t *testing.T) {
	for _, tc := range []struct {
		name    string
		policy  v1.RestartPolicy
		sandbox observed.State
		first   observed.State
		want    v1.PodPhase
	}{
		{"sandbox lost", never, observed.Exited, observed.Exited, v1.PodFailed},
		{"nothing has begun", never, observed.Exited, observed.Created, v1.PodPending},
		{"sandbox in use", never, observed.Running, observed.Exited, v1.PodPending},
		{"may run again", onFailure, observed.Exited, observed.Exited, v1.PodPending},
		{"the rest of it runs", never, observed.Exited, observed.Running, v1.PodPending},
	} {
		pod := podOf(tc.policy, nil, "a", "b")
		obs := &observed.Pod{
			Sandboxes:  []observed.Sandbox{{ID: "s", State: tc.sandbox}},
			Containers: []observed.Container{{ID: "1", Name: "a", SandboxID: "s", State: tc.first}},
		}
		if got := Of(Input{Pod: pod, Observed: obs}).Phase; got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
