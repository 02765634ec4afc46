package cristatus_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/node/status/cristatus"
)

type client struct {
	status            *runtimeapi.StatusResponse
	statusErr, verErr error
	versions          int
	version           string
	images            []*runtimeapi.Image
}

func (c *client) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	c.versions++
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: c.version}, c.verErr
}
func (c *client) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return c.status, c.statusErr
}
func (c *client) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return c.images, c.statusErr
}

func conditions(runtime, network bool) *runtimeapi.StatusResponse {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: "RuntimeReady", Status: runtime, Reason: "R", Message: "M"},
		{Type: "NetworkReady", Status: network, Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
	}}}
}

func TestState(t *testing.T) {
	c := &client{status: conditions(true, true), version: "2.1"}
	c.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "bare"}}
	c.status.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	s := cristatus.New(c)
	got, err := s.State(t.Context())
	if err != nil || got.NotReady != "" || got.NetworkNotReady != "" || got.Name != "containerd" || got.Version != "2.1" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if h := got.Handlers; len(h) != 2 || !*h[0].Features.UserNamespaces || *h[0].Features.RecursiveReadOnlyMounts || h[1].Features != nil || !*got.Features.SupplementalGroupsPolicy {
		t.Errorf("got %+v", got)
	}
	c.status = conditions(false, false)
	got, err = s.State(t.Context())
	if err != nil || got.NotReady != "RuntimeReady=false reason:R message:M" || got.NetworkNotReady != "NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized" || got.Features != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	c.status = &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}}
	if got, err = s.State(t.Context()); err != nil || got.NotReady == "" || got.NetworkNotReady == "" {
		t.Errorf("got %+v, %v", got, err)
	}
	c.status = &runtimeapi.StatusResponse{}
	if _, err = s.State(t.Context()); err == nil || !strings.Contains(err.Error(), "has no status") {
		t.Errorf("got %v", err)
	}
}

func TestVersionIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{status: conditions(true, true), version: "2.1"}
		s := cristatus.New(c)
		version := func() string {
			got, _ := s.State(t.Context())
			return got.Version
		}
		version()
		if version(); c.versions != 1 {
			t.Errorf("asked %d times", c.versions)
		}
		c.version, c.statusErr = "2.2", errors.New("refused")
		version()
		c.statusErr = nil
		if got := version(); got != "2.2" {
			t.Errorf("after a restart: %q", got)
		}
		c.version = "2.3"
		time.Sleep(time.Minute)
		if got := version(); got != "2.3" {
			t.Errorf("after a minute: %q", got)
		}
		time.Sleep(time.Minute)
		c.verErr = errors.New("no")
		if got := version(); got != "" {
			t.Errorf("without an answer: %q", got)
		}
	})
}

func TestImages(t *testing.T) {
	c := &client{images: []*runtimeapi.Image{{RepoDigests: []string{"d"}, RepoTags: []string{"t"}, Size: 7}}}
	got, err := cristatus.New(c).Images(t.Context())
	if want := []v1.ContainerImage{{Names: []string{"d", "t"}, SizeBytes: 7}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	c.statusErr = errors.New("no")
	if _, err := cristatus.New(c).Images(t.Context()); err == nil {
		t.Error("no error")
	}
}
