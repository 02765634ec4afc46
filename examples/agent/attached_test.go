package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
)

// A port of the node leads to the pod that asked for it.
func TestHostPort(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := containerdtest.NoHostPorts(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	port := testprogram.Port(t)
	l.write("web.yaml", strings.Replace(box("web", "serve, ':8080'"), "args:", fmt.Sprintf("ports: [{containerPort: 8080, hostPort: %d}], args:", port), 1))
	l.start()
	// The address of the lab's own bridge: another address may be that of another lab, and go with it.
	subnet, err := netip.ParsePrefix(l.c.Subnet)
	l.must(err)
	bridge := subnet.Masked().Addr().Next().String()
	ask := func() string {
		res, err := http.Get("http://" + net.JoinHostPort(bridge, fmt.Sprint(port)))
		if err != nil {
			return err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		l.must(err)
		return string(body)
	}
	l.until("served", func(now map[string]*v1.Pod) bool { return ready(now["web"]) && ask() == "web-lab\n" })

	// The port is free again when the pod has gone.
	l.remove("web.yaml")
	l.untilGone("web")
	if got := ask(); !strings.Contains(got, "refused") {
		t.Errorf("the port of a pod that is gone: %s", got)
	}
}

// What plugins attach to a container, and the services of its namespace, are
// there inside. The blocks are used as one without an agent uses them.
func TestAttachedSeenFromInside(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(os.WriteFile(filepath.Join(l.c.Dir, "cdi", "nodewright.json"), []byte(`{
		"cdiVersion": "0.6.0", "kind": "nodewright.test/thing",
		"devices": [{"name": "one", "containerEdits": {"env": ["THING=one"], "deviceNodes": [{"path": "/dev/thing", "hostPath": "/dev/null"}]}}]
	}`), 0o600))
	m, err := podruntime.New(podruntime.Config{Runtime: l.cri, Images: ownImages{}, PodLogsDir: l.logs})
	l.must(err)

	steps := []string{"cat", "/dev/nothing", "cat", "/dev/thing", "cat", "/proc/self/mountinfo", "env", "."}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "attached"},
		Spec: v1.PodSpec{
			RestartPolicy:                 v1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []v1.Container{{Name: "c", Image: sampleimage.Testbox, Args: steps}},
		},
	}
	in := podspec.Input{
		Pod: pod, PodDir: filepath.Join(l.root, "pods", "attached"), Node: podspec.Node{Name: "lab", PodLogsDir: l.logs, CgroupV2: node.CgroupV2()},
		Services: []*v1.Service{{
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"},
			Spec:       v1.ServiceSpec{ClusterIP: "192.0.2.7", Ports: []v1.ServicePort{{Port: 5432, Protocol: v1.ProtocolTCP}}},
		}},
		Attached: map[string]podspec.Attachment{"c": {
			Env:     []v1.EnvVar{{Name: "PLUGIN", Value: "was here"}},
			Mounts:  []*runtimeapi.Mount{{ContainerPath: "/etc/driver", HostPath: t.TempDir(), Readonly: true}},
			Devices: []*runtimeapi.Device{{ContainerPath: "/dev/nothing", HostPath: "/dev/null", Permissions: "r"}},
			CDI:     []string{"nodewright.test/thing=one"},
		}},
	}
	reader := cri.NewReader(l.cri)
	look := func() *observed.Pod {
		obs, err := reader.Inspect(t.Context(), pod.UID)
		l.must(err)
		return obs
	}
	l.must(os.MkdirAll(in.PodDir, 0o750))
	res := m.Sync(t.Context(), podruntime.Request{Spec: in, Observed: look()})
	l.must(res.Err())
	end := look().Containers[0]
	for limit := time.Now().Add(testTimeout); end.State != observed.Exited; end = look().Containers[0] {
		if time.Now().After(limit) {
			t.Fatalf("the container is %s after %v", end.State, testTimeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
	log, err := os.ReadFile(end.LogPath)
	l.must(err)
	var lines []string
	for line := range strings.Lines(string(log)) {
		_, text, _ := strings.Cut(line, " F ") // the CRI's log format
		lines = append(lines, strings.TrimSuffix(text, "\n"))
	}
	if end.Code() != 0 {
		t.Errorf("it exited with %d", end.Code())
	}
	for _, want := range []string{"THING=one", "PLUGIN=was here", "DB_SERVICE_HOST=192.0.2.7", "DB_PORT_5432_TCP=tcp://192.0.2.7:5432"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q", want)
		}
	}
	if !slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(s, " /etc/driver ro,") }) {
		t.Error("no mount on /etc/driver that is read-only")
	}
	if t.Failed() {
		t.Logf("it said:\n%s", strings.Join(lines, "\n"))
	}
	l.must(m.Kill(t.Context(), pod, look(), nil))
}

// ownImages are images that are on the node already.
type ownImages struct{}

func (ownImages) Ensure(_ context.Context, r podruntime.ImageRequest) (podspec.ImageFacts, error) {
	return podspec.ImageFacts{Ref: r.Image}, nil
}
