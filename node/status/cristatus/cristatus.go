// Package cristatus reads a container runtime's state and images through the
// Container Runtime Interface, for a [status.Manager].
//
//	source := cristatus.New(client) // a *cri.Client
//	m, err := status.New(status.Config{Runtime: source, Images: source, ...})
//
// The version is read at the first call, after a failed call, and each minute: a
// runtime that was replaced has failed to answer in between. The caller sets the
// deadlines.
//
// Tier: beta.
package cristatus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/node/status"
)

// Client is the part of a runtime and its image service that this package uses.
type Client interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
}

const versionEvery = time.Minute

// Source is a status.Runtime and status.Images. Its methods may be called from
// any goroutine.
type Source struct {
	client Client

	mu            sync.Mutex
	name, version string
	asked         time.Time // zero: to be read again
}

// New returns a Source. It makes no call.
func New(c Client) *Source { return &Source{client: c} }

// State reads status and version. A version that cannot be read is "".
func (s *Source) State(ctx context.Context) (status.RuntimeState, error) {
	res, err := s.client.Status(ctx, false)
	if err == nil && res.GetStatus() == nil {
		err = errors.New("the runtime's answer to Status has no status")
	}
	if err != nil {
		s.mu.Lock()
		s.asked = time.Time{}
		s.mu.Unlock()
		return status.RuntimeState{}, fmt.Errorf("read status of the runtime: %w", err)
	}
	out := status.RuntimeState{
		NotReady:        unmet(res.Status, runtimeapi.RuntimeReady),
		NetworkNotReady: unmet(res.Status, runtimeapi.NetworkReady),
	}
	for _, h := range res.RuntimeHandlers {
		to := v1.NodeRuntimeHandler{Name: h.GetName()}
		if f := h.GetFeatures(); f != nil {
			to.Features = &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &f.RecursiveReadOnlyMounts, UserNamespaces: &f.UserNamespaces}
		}
		out.Handlers = append(out.Handlers, to)
	}
	if f := res.Features; f != nil {
		out.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &f.SupplementalGroupsPolicy}
	}
	out.Name, out.Version = s.named(ctx)
	return out, nil
}

func (s *Source) named(ctx context.Context) (name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < versionEvery {
		return s.name, s.version
	}
	if v, err := s.client.Version(ctx, ""); err == nil {
		s.name, s.version, s.asked = v.GetRuntimeName(), v.GetRuntimeVersion(), time.Now()
	} else {
		s.version = ""
	}
	return s.name, s.version
}

// unmet returns the kubelet's text for a condition that is false, and "" if it is true.
func unmet(s *runtimeapi.RuntimeStatus, kind string) string {
	for _, c := range s.GetConditions() {
		if c.GetType() != kind {
			continue
		}
		if c.GetStatus() {
			return ""
		}
		return fmt.Sprintf("%s=%t reason:%s message:%s", c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage())
	}
	return fmt.Sprintf("%s=false reason:%s message:the runtime does not report it", kind, strings.TrimSuffix(kind, "Ready")+"StateUnknown")
}

// Images returns the images, each with its digests followed by its tags.
func (s *Source) Images(ctx context.Context) ([]v1.ContainerImage, error) {
	list, err := s.client.ListImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := make([]v1.ContainerImage, 0, len(list))
	for _, i := range list {
		names := append(append([]string(nil), i.GetRepoDigests()...), i.GetRepoTags()...)
		out = append(out, v1.ContainerImage{Names: names, SizeBytes: int64(i.GetSize())})
	}
	return out, nil
}
