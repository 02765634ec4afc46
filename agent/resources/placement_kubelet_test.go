package resources_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
)

// given is a state in which each of some pods has CPUs for its one container.
func given(pods map[string][]int) cpumgr.State {
	s := cpumgr.NewState(numa.CPUs(0, 1, 2, 3, 4, 5, 6, 7))
	for name, cpus := range pods {
		s = s.WithPod(cpumgr.PodCPUs{UID: "uid-" + name, Containers: []cpumgr.ContainerCPUs{{Name: name, CPUs: numa.CPUs(cpus...)}}})
	}
	return s
}

// writeKubelet writes a kubelet's file; policy is that of the kubelet.
func (n *placementNode) writeKubelet(policy string, s cpumgr.State) {
	n.t.Helper()
	b, err := s.EncodeKubelet(policy)
	if err == nil {
		err = os.WriteFile(n.kubeletFile(), b, 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *placementNode) kubeletFile() string { return filepath.Join(n.kubelet, "cpu_manager_state") }

// wantKubelet has the part end, and compares what the kubelet's file says then.
func (n *placementNode) wantKubelet(want cpumgr.State) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	cancel()
	if err := n.p.Run(ctx); err != nil {
		n.t.Error(err)
	}
	b, err := want.EncodeKubelet(fit.CPUStatic)
	if err != nil {
		n.t.Fatal(err)
	}
	if got, err := os.ReadFile(n.kubeletFile()); err != nil || string(got) != string(b) {
		n.t.Errorf("the kubelet's file says %s, %v; want %s", got, err, b)
	}
}

// What a kubelet gave stays with its pods: those that run, and those that are between
// two starts. The kubelet finds what was given since.
func TestKubeletState(t *testing.T) {
	n := newNode(t)
	n.forgetful = true // a kubelet's containers do not tell
	n.start()
	a := owns("a", "2")
	n.run(a)
	if err := os.RemoveAll(n.dir); err != nil { // as if a kubelet had run it
		t.Fatal(err)
	}
	n.kubelet = t.TempDir()
	n.writeKubelet(fit.CPUStatic, given(map[string][]int{"a": {1, 2}, "waits": {6, 7}, "gone": {5}}))

	n.start()
	b := owns("b", "2")
	n.run(b) // before anybody else is named
	waits := owns("waits", "2")
	n.p.Adopt(a)
	n.p.Adopt(waits)
	if err := n.sync(waits); err != nil {
		t.Fatal(err)
	}
	n.wantCPUs(map[string]string{"a": "1-2", "b": "3-4", "waits": "6-7"})
	if err := n.p.Sweep(t.Context(), func(uid types.UID) bool { return uid != "uid-gone" }); err != nil {
		t.Error(err)
	}
	n.wantKubelet(given(map[string][]int{"a": {1, 2}, "b": {3, 4}, "waits": {6, 7}}))

	// The own checkpoints are newer now, and the kubelet's file after its next life.
	n.start()
	for _, pod := range []*v1.Pod{a, b, waits} {
		n.p.Adopt(pod)
	}
	n.wantKubelet(given(map[string][]int{"a": {1, 2}, "b": {3, 4}, "waits": {6, 7}}))
	n.remove(b)
	n.remove(waits)
	n.writeKubelet(fit.CPUStatic, given(map[string][]int{"a": {1, 2}, "waits": {3, 4}}))
	n.start()
	n.p.Adopt(a)
	n.p.Adopt(waits)
	if err := n.sync(waits); err != nil {
		t.Fatal(err)
	}
	n.wantCPUs(map[string]string{"a": "1-2", "waits": "3-4"})
}

// A file that says nothing is written anew.
func TestKubeletStateIgnored(t *testing.T) {
	for name, write := range map[string]func(n *placementNode){
		"damaged":        func(n *placementNode) { n.must(os.WriteFile(n.kubeletFile(), []byte("{"), 0o600)) },
		"another policy": func(n *placementNode) { n.writeKubelet("none", given(nil)) },
		"too large": func(n *placementNode) {
			n.must(os.WriteFile(n.kubeletFile(), make([]byte, 2<<20), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.kubelet = t.TempDir()
			write(n)
			n.start()
			n.run(owns("a", "1"))
			n.wantKubelet(given(map[string][]int{"a": {1}}))
		})
	}
	// A policy that places nothing leaves nothing behind.
	n := newNode(t)
	n.kubelet = t.TempDir()
	n.writeKubelet(fit.CPUStatic, given(nil))
	n.start()
	a := owns("a", "1")
	n.run(a)
	n.wantKubelet(given(map[string][]int{"a": {1}}))
	n.end(a)
	n.fit = fit.PlacementConfig{Machine: n.fit.Machine}
	for _, idle := range []bool{false, true} {
		if n.start(); n.p.Idle() != idle {
			t.Errorf("idle: %t, want %t", n.p.Idle(), idle)
		}
	}

}

func (n *placementNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}
