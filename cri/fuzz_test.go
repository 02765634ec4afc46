package cri

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// wire is a runtime whose answers are the bytes of a stranger.
type wire struct {
	ReadRuntime
	sandboxes, containers, sandbox, container []byte
}

func (w wire) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	resp := &runtimeapi.ListPodSandboxResponse{}
	err := decode(w.sandboxes, resp)
	return resp.GetItems(), err
}

func (w wire) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	resp := &runtimeapi.ListContainersResponse{}
	err := decode(w.containers, resp)
	return resp.GetContainers(), err
}

func (w wire) PodSandboxStatus(context.Context, string, bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	resp := &runtimeapi.PodSandboxStatusResponse{}
	return resp, decode(w.sandbox, resp)
}

func (w wire) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	resp := &runtimeapi.ContainerStatusResponse{}
	return resp, decode(w.container, resp)
}

// Whatever a runtime answers, what is read of it is in bounds: names are parts
// of paths, addresses are addresses.
func FuzzAnswers(f *testing.F) {
	bytes := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	for _, uid := range []string{"u", "../..", "a/b", "", strings.Repeat("x", 300)} {
		labels := map[string]string{LabelPodUID: uid, LabelPodName: "p/..", LabelPodNamespace: "ns", AnnotationRestartCount: "-7"}
		f.Add(
			bytes(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s", Labels: labels}, {Id: "/", Labels: labels}}}),
			bytes(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", Labels: labels}, {Labels: labels}}}),
			bytes(&runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
				Id: "s", Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "010.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "::1"}, {Ip: "x"}}},
				Labels: labels, CreatedAt: -1,
			}}),
			bytes(&runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "../c", Attempt: 1<<32 - 1}, Labels: labels, Annotations: labels,
				State: runtimeapi.ContainerState_CONTAINER_EXITED, Message: strings.Repeat("é", maxMessage), CreatedAt: -1 << 63, FinishedAt: 1<<63 - 1,
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/x", RecursiveReadOnly: true}},
			}}),
		)
	}
	f.Fuzz(func(t *testing.T, sandboxes, containers, sandbox, container []byte) {
		r := NewReader(wire{sandboxes: sandboxes, containers: containers, sandbox: sandbox, container: container})
		list, err := r.List(t.Context())
		if err != nil {
			return
		}
		for _, l := range list {
			checkName(t, "uid", string(l.UID), true)
			checkName(t, "name", l.Name, false)
			checkName(t, "namespace", l.Namespace, false)
			p, err := r.Inspect(t.Context(), l.UID)
			if err != nil {
				continue
			}
			for i := range p.Sandboxes {
				checkName(t, "sandbox", p.Sandboxes[i].ID, true)
			}
			for i := range p.Containers {
				checkContainer(t, &p.Containers[i])
			}
			p.Surplus()
			p.Settled()
		}
	})
}

func checkName(t *testing.T, what, s string, required bool) {
	t.Helper()
	if required && s == "" || len(s) > maxID || s == ".." || strings.ContainsAny(s, "/\x00") {
		t.Errorf("%s %q", what, s)
	}
}

func checkContainer(t *testing.T, c *observed.Container) {
	t.Helper()
	checkName(t, "container", c.ID, true)
	checkName(t, "container's name", c.Name, false)
	checkName(t, "container's sandbox", c.SandboxID, false)
	if c.RestartCount < 0 || len(c.Message) > maxMessage || len(c.LogPath) > maxPath || sizeOf(c.Labels) > maxLabels || sizeOf(c.Annotations) > maxLabels {
		t.Errorf("out of bounds: %d restarts, message of %d, path of %d, labels of %d", c.RestartCount, len(c.Message), len(c.LogPath), sizeOf(c.Labels))
	}
}
