package nodeagent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/testrun"
)

func TestChooseRuntime(t *testing.T) {
	const containerd, crio = "unix:///run/containerd/containerd.sock", "unix:///run/crio/crio.sock"
	for _, c := range []struct {
		name        string
		named, last string
		local       bool
		answers     string // the socket that does
		exists      string
		want        string
		err         string
	}{
		{name: "named", named: crio, last: InProcess, local: true, answers: containerd, want: crio},
		{name: "named in process", named: InProcess, last: crio, local: true, answers: containerd, want: InProcess},
		{name: "named in process, and there is none", named: InProcess, err: `containerRuntimeEndpoint="localcri"`},
		{name: "a socket answers", local: true, answers: containerd, want: containerd},
		{name: "a socket answers, without a runtime here", answers: crio, want: crio},
		{name: "no socket, without a runtime here", err: "nobody"},
		{name: "no socket", local: true, want: InProcess},
		{name: "a socket is there and does not answer", local: true, exists: "/run/crio/crio.sock", err: "/run/crio/crio.sock exists"},
		{name: "its pods are here, and containerd was installed", last: InProcess, local: true, answers: containerd, want: InProcess},
		{name: "its pods are on containerd, which was removed", last: containerd, local: true, err: "started with " + containerd},
		{name: "its pods are on containerd, which answers", last: containerd, local: true, answers: containerd, want: containerd},
		{name: "its pods were here, by a program with a runtime", last: InProcess, answers: containerd, want: containerd},
	} {
		t.Run(c.name, func(t *testing.T) {
			find := func() (string, error) {
				if c.answers == "" {
					return "", errors.New("nobody answers")
				}
				return c.answers, nil
			}
			got, err := choose(c.named, c.last, c.local, find, func() string { return c.exists })
			if got.endpoint != c.want || (got.why == "") != (c.err != "") {
				t.Errorf("%+v, want %q", got, c.want)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q in it", err, c.err)
			}
		})
	}
}

// localNode are options of a node with a runtime in the process.
func localNode(t *testing.T, run func(context.Context) error) (Options, *critest.Runtime) {
	t.Helper()
	o := options(t, "", "--container-runtime-endpoint", InProcess)
	rt := critest.New()
	o.Runtime, o.Images = nil, nil
	o.LocalRuntime = func(context.Context, *Builder) (*LocalRuntime, error) {
		return &LocalRuntime{
			Runtime: rt, Images: rt, Run: run, Network: "none: asked for", Advice: func() []string { return []string{"forward"} },
			Import: func(_ context.Context, archive io.Reader, name string) ([]string, error) {
				b, err := io.ReadAll(archive)
				return []string{name + string(b)}, err
			},
		}, nil
	}
	return o, rt
}

// A node's own runtime runs from before its agent until after it, and is on record.
func TestLocalRuntimeRuns(t *testing.T) {
	ended := make(chan struct{})
	begun := make(chan struct{})
	o, _ := localNode(t, func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil
	})
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(RuntimeRecords(o.Config.RootDir)); err == nil {
		t.Error("a node at rest has written which runtime it has")
	}
	stop := testrun.Start(t, n.Run)
	<-begun
	<-n.Up()
	if why := n.WhyNode(); why.Runtime != InProcess || why.Network != "none: asked for" || !slices.Equal(why.Advice, []string{"forward"}) {
		t.Errorf("runtime %q, network %q, advice %q", why.Runtime, why.Network, why.Advice)
	}
	stop()
	<-ended
	if last, err := part.OpenStore(RuntimeRecords(o.Config.RootDir), nil).Read(endpointKey); string(last) != InProcess || err != nil {
		t.Errorf("on record: %q, %v", last, err)
	}
}

// A node whose own runtime fails ends with its error.
func TestLocalRuntimeFails(t *testing.T) {
	o, _ := localNode(t, func(context.Context) error { return errors.New("the directory is somebody else's") })
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "container runtime: the directory is somebody else's") {
		t.Error(err)
	}
}

func TestImageWork(t *testing.T) {
	o, rt := localNode(t, func(ctx context.Context) error { <-ctx.Done(); return nil })
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	ids, err := n.LoadImages(t.Context(), bytes.NewReader([]byte("x")), "n")
	if !slices.Equal(ids, []string{"nx"}) || err != nil {
		t.Errorf("%q, %v", ids, err)
	}
	if _, err := n.PullImage(t.Context(), "localhost/app:1"); !errors.Is(err, local.ErrNotFound) {
		t.Errorf("an image that is nowhere: %v", err)
	}
	rt.OfferImage("localhost/app:1")
	id, err := n.PullImage(t.Context(), "localhost/app:1")
	if id == "" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u", Namespace: "default"}}
	s, err := rt.RunPodSandbox(t.Context(), sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = rt.CreateContainer(t.Context(), s, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: id},
		Labels: map[string]string{"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.name": "web"},
	}, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveImage(t.Context(), "localhost/app:1", false); err == nil || !strings.Contains(err.Error(), `used by container "c" of pod default/web`) {
		t.Errorf("an image in use: %v", err)
	}
	if err := n.RemoveImage(t.Context(), "localhost/app:1", true); err != nil {
		t.Error(err)
	}
	if err := n.RemoveImage(t.Context(), "localhost/app:1", false); !errors.Is(err, local.ErrNotFound) {
		t.Errorf("an image that has gone: %v", err)
	}
	other, err := New(t.Context(), options(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.LoadImages(t.Context(), nil, ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a runtime without archives: %v", err)
	}
}
