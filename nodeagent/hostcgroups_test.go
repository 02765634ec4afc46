package nodeagent

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

// The runtime's cgroup is that of the process behind its socket, which may come
// later than the agent, and is another than the one that is told.
func TestCgroupOfTheRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	tree := cgroupstest.NewTree(cgroups.V2)
	self := filepath.Join("/proc", strconv.Itoa(os.Getpid()), "cgroup")
	tree.File(self, "0::/runtime.slice/containerd\n")
	tree.Make("/given")
	h := &hostCgroups{host: cgroups.Host{FS: tree}, endpoint: "unix://" + socket, wanted: map[string]string{
		statsapi.SystemContainerKubelet: "/given", statsapi.SystemContainerRuntime: "/not-there",
	}}
	if got := h.all(); len(got) != 1 || got[statsapi.SystemContainerKubelet] != "/given" {
		t.Errorf("before the runtime is there: %v", got)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if got := h.all(); len(got) != 1 {
		t.Errorf("it was looked for again at once: %v", got)
	}
	h.looked = h.looked.Add(-lookAgain)
	if got := h.all(); got[statsapi.SystemContainerRuntime] != "/runtime.slice/containerd" {
		t.Errorf("got %v", got)
	}
	tree.File(self, "0::/\n") // which is everybody's
	h.looked, h.known = h.looked.Add(-lookAgain), nil
	if got := h.all(); len(got) != 1 {
		t.Errorf("in the root: %v", got)
	}
}
