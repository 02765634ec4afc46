package images_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

// An image can be ensured without a pod: no events are sent, and no pod's secrets used.
func TestEnsureWithoutAPod(t *testing.T) {
	r, ev := &registry{}, &events{}
	m := newManager(t, images.Config{Service: r, Events: ev})
	for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullIfNotPresent, v1.PullAlways, v1.PullNever} {
		if img, err := m.Ensure(t.Context(), images.Request{Image: "registry.example/app:1", Policy: policy}); err != nil || img.Ref == "" {
			t.Errorf("%s: %+v, %v", policy, img, err)
		}
	}
	var given *runtimeapi.AuthConfig
	r.refuse = func(_ string, auth *runtimeapi.AuthConfig) error { given = auth; return errBroken }
	for _, want := range []string{images.ReasonPull, images.ReasonPullBackOff} {
		req := images.Request{Image: "registry.example/none:1", Secrets: []*v1.Secret{pullSecret("me")}}
		if _, err := m.Ensure(t.Context(), req); reason(t, err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := m.Ensure(t.Context(), images.Request{Image: "no reference"}); err == nil {
		t.Error("a bad reference is taken")
	}
	if given.GetUsername() != "" || len(ev.take()) != 0 {
		t.Errorf("credentials %v, or events", given)
	}
}
