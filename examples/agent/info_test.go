package main

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// nodeOf is an agent that explains and describes its node.
type nodeOf struct {
	*fakeAgent
	why local.NodeWhy
}

func (n *nodeOf) WhyNode() local.NodeWhy { return n.why }

func (*nodeOf) DescribeNode(_ context.Context, into *v1.Node) {
	st := &into.Status
	st.Capacity = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi")}
	st.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	st.NodeInfo = v1.NodeSystemInfo{OSImage: "Debian 12", KernelVersion: "6.1", Architecture: "amd64", KubeletVersion: "v1.37.0"}
	st.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}}
}

// serveNode serves an agent on a socket, with its configuration and, if cordoned, a Kubernetes API
// with a cordoned node.
func serveNode(t *testing.T, a local.Agent, cordoned bool) (root string) {
	t.Helper()
	root = t.TempDir()
	l, err := local.Listen(filepath.Join(root, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", local.Handler(a, nil))
	mux.Handle("GET "+configPath, configHandler([]kubeletconfig.Value{
		{Field: "--config", Value: "/etc/agent.yaml"}, {Field: "--local-api", Value: "127.0.0.1:6443"}, {Field: "--kubeconfig", Value: ""},
		{Field: "staticPodPath", Value: "/etc/manifests"}, {Field: "podLogsDir", Value: "/var/log/pods"}, {Field: "maxPods", Value: 110},
	}))
	if cordoned {
		mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
			n := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1.NodeSpec{Unschedulable: true}}
			a.(local.NodeDescriber).DescribeNode(r.Context(), &n)
			_ = json.NewEncoder(w).Encode(v1.NodeList{Items: []v1.Node{n}})
		})
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return root
}

func TestInfo(t *testing.T) {
	a := &nodeOf{
		&fakeAgent{pods: []*v1.Pod{testPod("default", "a"), testPod("default", "b")}, why: local.Why{Good: true}},
		local.NodeWhy{Name: "edge", Runtime: "localcri", Network: "bridge: it is asked for", Parts: []local.Part{{Name: "eviction", Hooks: []string{"Runner"}}}},
	}
	const rest = `2 CPUs, 4.0GiB of memory, Debian 12, kernel 6.1, amd64, 192.0.2.7
pods: 2 of 2 are in their desired state
runtime: localcri
network: bridge: it is asked for
`
	for _, tc := range []struct {
		line     string
		cordoned bool
		want     string
	}{
		{"info", false, "node edge: Ready, v1.37.0\n" + rest + `configuration: /etc/agent.yaml
root directory: ROOT
socket: ROOT/agent.sock
manifests: /etc/manifests
logs of pods: /var/log/pods
Kubernetes API: 127.0.0.1:6443
next: agent get pods; agent why POD; agent ui
`},
		{"why node", true, "node edge: Ready, SchedulingDisabled (kubectl uncordon edge), v1.37.0\n" + rest},
		{"why node --parts", false, "node edge: Ready, v1.37.0\n" + rest + "\nparts, in the order in which they are called:\neviction: Runner\n"},
		{"get nodes", true, "NAME STATUS ROLES AGE VERSION\nedge Ready,SchedulingDisabled <none> <unknown> v1.37.0\n"},
	} {
		root := serveNode(t, a, tc.cordoned)
		stdout, stderr, code := ask(t, root, tc.line)
		if got := squeezed(strings.ReplaceAll(stdout, root, "ROOT")); code != 0 || stderr != "" || got != squeezed(tc.want) {
			t.Errorf("agent %s: exit %d, stderr %q\n%s\nwant\n%s", tc.line, code, stderr, got, tc.want)
		}
	}
}

// An agent that explains no node has no answer, and one without a Node object a short one.
func TestInfoOfAnotherAgent(t *testing.T) {
	if _, stderr, code := ask(t, serveAgent(t, &fakeAgent{}), "info"); code != 1 || !strings.Contains(stderr, "does not explain its node") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	root := serveAgentOf(t, &explained{&fakeAgent{}})
	stdout, stderr, code := ask(t, root, "info")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "node edge\npods: 0 of 0 are in their desired state\nroot directory:") {
		t.Errorf("exit %d, %q\n%s", code, stderr, stdout)
	}
}

type explained struct{ *fakeAgent }

func (*explained) WhyNode() local.NodeWhy { return local.NodeWhy{Name: "edge"} }
