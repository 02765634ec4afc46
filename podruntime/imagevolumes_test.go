package podruntime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// listing are images that are there, but for those named missing. It lists what
// it was asked for.
type listing struct {
	missing string

	mu    sync.Mutex
	asked []string
}

func (l *listing) Ensure(_ context.Context, r ImageRequest) (podspec.ImageFacts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, r.Image+"|"+r.RuntimeHandler)
	if r.Image == l.missing {
		return podspec.ImageFacts{}, podlife.WithReason("ErrImagePull", errors.New("no such image"))
	}
	return podspec.ImageFacts{Ref: r.Image + "@sha256:1"}, nil
}

// mounting notes what containers mount.
type mounting struct {
	*memory
	mounts map[string]*runtimeapi.ImageSpec // by the container's name
}

func (m *mounting) CreateContainer(ctx context.Context, sb string, c *runtimeapi.ContainerConfig, sc *runtimeapi.PodSandboxConfig) (string, error) {
	m.one(func() {
		for _, mount := range c.GetMounts() {
			if mount.GetImage() != nil {
				m.mounts[c.GetMetadata().GetName()] = mount.GetImage()
			}
		}
	})
	return m.memory.CreateContainer(ctx, sb, c, sc)
}

func (m *mounting) one(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
}

// An image volume is asked for by the containers that mount it and are to be
// started; if it cannot be had, by no others it is missed.
func TestImageVolumes(t *testing.T) {
	w := build(v1.RestartPolicyAlways, nil, "a", "b", "c")
	volume := func(name string) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: name}}}
	}
	w.pod.Spec.Volumes = []v1.Volume{volume("good"), volume("bad"), volume("unused")}
	for i, name := range []string{"good", "bad"} {
		w.pod.Spec.Containers[i].VolumeMounts = []v1.VolumeMount{{Name: name, MountPath: "/v"}}
	}
	rt, l := &mounting{memory: newMemory(), mounts: map[string]*runtimeapi.ImageSpec{}}, &listing{missing: "bad"}
	m, err := New(Config{Runtime: rt, Images: l, PodLogsDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	req := request(t, w, nil)
	req.Spec.RuntimeHandler = "kata"
	res := m.Sync(t.Context(), req)
	if reasonOf(res.Err()) != "ErrImagePull" || len(m.StartErrors(podlife.Life{UID: "u"})) != 1 || m.StartErrors(podlife.Life{UID: "u"})["b"].Reason != "ErrImagePull" {
		t.Errorf("error %v, starts that failed %v", res.Err(), m.StartErrors(podlife.Life{UID: "u"}))
	}
	for name, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if o := rt.look().Newest(name); (o != nil && o.State == observed.Running) != want {
			t.Errorf("%s runs: %v", name, !want)
		}
	}
	if got := rt.mounts["a"].GetImage(); got != "good@sha256:1" {
		t.Errorf("a mounts %q", got)
	}
	slices.Sort(l.asked)
	if got := l.asked; !slices.Equal(got, []string{"bad|kata", "good|kata", "img|kata", "img|kata", "img|kata"}) {
		t.Errorf("asked for %v", got)
	}
	l.asked, l.missing = nil, ""
	req.Observed = rt.look()
	m.Retry("u")
	mustSync(t, m, req)
	slices.Sort(l.asked)
	if got := l.asked; !slices.Equal(got, []string{"bad|kata", "img|kata"}) {
		t.Errorf("asked again for %v", got)
	}
}
