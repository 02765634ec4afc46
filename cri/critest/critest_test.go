package critest_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

const image = "localhost/nodewright/testbox:1"

func TestConformance(t *testing.T) {
	t.Run("in process", func(t *testing.T) {
		rt := critest.New()
		rt.AddImage(image)
		critest.Conformance(t, critest.Subject{Runtime: rt, Images: rt, Image: image, Offer: offer(rt)})
	})
	t.Run("over gRPC", func(t *testing.T) {
		rt := critest.New()
		rt.AddImage(image)
		c := rt.Client(t)
		critest.Conformance(t, critest.Subject{Runtime: c, Images: c, Image: image, Offer: offer(rt)})
	})
}

// offer puts images into the fake's registry.
func offer(rt *critest.Runtime) func(name string) string {
	return func(name string) string {
		name = "localhost/" + name
		rt.OfferImage(name)
		return name
	}
}

func TestConformanceOfContainerd(t *testing.T) {
	d := containerdtest.New(t, containerdtest.Options{})
	c, err := cri.New(cri.Config{Endpoint: d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	archives, err := sampleimage.Build(t.Context(), filepath.Join("..", ".."), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(archives, func(a string) bool { return filepath.Base(a) == "testbox.tar" })
	reg := critest.NewRegistry(t, archives[i])
	subject := critest.Subject{Runtime: c, Images: c, Image: sampleimage.Testbox, Offer: reg.Offer, NoUserNamespaces: containerdtest.NoIDMaps()}
	critest.Conformance(t, subject)
	t.Run("containers", func(t *testing.T) { critest.Containers(t, subject) })
}

func TestFaults(t *testing.T) {
	rt := critest.New()
	boom := errors.New("boom")
	ctx := t.Context()
	version := func() error { _, err := rt.Version(ctx, "v1"); return err }

	rt.FailNext("Version", 2, boom)
	for i, want := range []error{boom, boom, nil} {
		if err := version(); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	release := rt.Hang("Status")
	hung := make(chan error)
	go func() { _, err := rt.Status(ctx, false); hung <- err }()
	select {
	case err := <-hung:
		t.Fatalf("the call did not hang: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	release()
	if err := <-hung; err != nil {
		t.Error(err)
	}
	rt.Die()
	if err := version(); status.Code(err) != codes.Unavailable {
		t.Errorf("dead: %v", err)
	}
	rt.Revive()
	lost := errors.New("the answer was lost")
	rt.Around(nil, func(c critest.Call) error {
		if c.Method == "RunPodSandbox" {
			return lost
		}
		return nil
	})
	_, err := rt.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u"}}, "")
	if !errors.Is(err, lost) {
		t.Errorf("error %v", err)
	}
	if list, _ := rt.ListPodSandbox(ctx, nil); len(list) != 1 {
		t.Errorf("%d sandboxes, want the one of the lost answer", len(list))
	}
	if n := len(rt.Calls("RunPodSandbox")); n != 1 {
		t.Errorf("%d calls counted, want 1", n)
	}
}
