package images_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

var errBroken = errors.New("broken")

func TestEnsure(t *testing.T) {
	here := func(r *registry) { r.put("app:1") }
	blind := func(r *registry) {
		r.inspect = func(string, *runtimeapi.Image) (bool, error) { return false, errBroken }
	}
	refused := func(r *registry) {
		r.refuse = func(string, *runtimeapi.AuthConfig) error { return errBroken }
	}
	const pulling, pulled = `Normal Pulling: Pulling image "app:1"`, `Normal Pulled: Successfully pulled image "app:1" in `
	for _, tc := range []struct {
		name    string
		image   string // app:1
		policy  v1.PullPolicy
		service func(*registry)
		reason  string
		text    string
		pulls   int
		events  []string
	}{
		{name: "missing", policy: v1.PullIfNotPresent, pulls: 1, events: []string{pulling, pulled}},
		{name: "missing, no policy", pulls: 1, events: []string{pulling, pulled}},
		{name: "missing, always", policy: v1.PullAlways, pulls: 1, events: []string{pulling, pulled}},
		{
			name: "missing, never", policy: v1.PullNever, reason: "ErrImageNeverPull",
			text:   `Container image "app:1" is not present with pull policy of Never`,
			events: []string{`Warning ErrImageNeverPull: Container image "app:1" is not present with pull policy of Never`},
		},
		{name: "present", policy: v1.PullIfNotPresent, service: here, events: []string{`Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod`}},
		{name: "present, never", policy: v1.PullNever, service: here, events: []string{`Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod`}},
		{name: "present, always", policy: v1.PullAlways, service: here, pulls: 1, events: []string{pulling, pulled}},

		{
			name: "not to be inspected", policy: v1.PullIfNotPresent, service: blind, reason: "ImageInspectError", text: `failed to inspect image "app:1": broken`,
			events: []string{`Warning InspectFailed: Failed to inspect image "app:1": broken`},
		},
		{
			name: "not to be inspected, never", policy: v1.PullNever, service: blind, reason: "ImageInspectError", text: `failed to inspect image "app:1": broken`,
			events: []string{`Warning InspectFailed: Failed to inspect image "app:1": broken`},
		},
		{name: "not to be inspected, always", policy: v1.PullAlways, service: blind, reason: "ImageInspectError", text: `failed to inspect image "app:1": broken`, pulls: 1, events: []string{pulling, pulled}},
		{
			name: "gone at once, and again", policy: v1.PullIfNotPresent, reason: "ErrImagePull", text: `image "app:1" is gone right after it was pulled`, pulls: 2,
			service: func(r *registry) { r.inspect = func(string, *runtimeapi.Image) (bool, error) { return false, nil } },
			events:  []string{pulling, pulled},
		},
		{
			name: "refused", policy: v1.PullIfNotPresent, service: refused, reason: "ErrImagePull", text: `broken`, pulls: 1,
			events: []string{pulling, `Warning Failed: Failed to pull image "app:1": broken`},
		},
		{
			name: "refused, present, always", policy: v1.PullAlways, reason: "ErrImagePull", text: `broken`, pulls: 1,
			service: func(r *registry) { here(r); refused(r) },
			events:  []string{pulling, `Warning Failed: Failed to pull image "app:1": broken`},
		},
		{
			name: "no name", image: "Not A Name", policy: v1.PullAlways, reason: "InvalidImageName", text: `invalid image name "Not A Name": `,
			events: []string{`Warning InspectFailed: Failed to apply default image tag "Not A Name": `},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			service, told := &registry{}, &events{}
			if tc.service != nil {
				tc.service(service)
			}
			if tc.image == "" {
				tc.image = "app:1"
			}
			m := newManager(t, images.Config{Service: service, Events: told})
			img, err := m.Ensure(t.Context(), want("a", tc.image, tc.policy))
			if got := reason(t, err); got != tc.reason || (err != nil && !strings.HasPrefix(err.Error(), tc.text)) {
				t.Errorf("error = %v of reason %q, want %q of %q", err, got, tc.text, tc.reason)
			}
			if err == nil && (img.Ref != "sha256-of-app:1" || img.UID == nil || *img.UID != 33) {
				t.Errorf("image = %v, want the one of the service", img)
			}
			if got := len(service.pulled()); got != tc.pulls {
				t.Errorf("%d pulls, want %d", got, tc.pulls)
			}
			if got := told.take(); !slices.EqualFunc(got, tc.events, strings.HasPrefix) {
				t.Errorf("events = %q, want %q", got, tc.events)
			}
		})
	}
}

func TestEnsureKeepsTheCause(t *testing.T) {
	service := &registry{refuse: func(string, *runtimeapi.AuthConfig) error { return errBroken }}
	_, err := newManager(t, images.Config{Service: service}).Ensure(t.Context(), want("a", "app", v1.PullAlways))
	if !errors.Is(err, errBroken) {
		t.Errorf("error = %v, want one that is errBroken", err)
	}
}

func TestEnsureAsksForTheNormalName(t *testing.T) {
	service := &registry{}
	m := newManager(t, images.Config{Service: service})
	for _, name := range []string{"app", "registry.example:5000/app", "app:2"} {
		if _, err := m.Ensure(t.Context(), want("a", name, v1.PullAlways)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := service.pulled(), []string{"app:latest", "registry.example:5000/app:latest", "app:2"}; !slices.Equal(got, want) {
		t.Errorf("pulled %q, want %q", got, want)
	}
}

func TestImageFacts(t *testing.T) {
	service := &registry{here: map[string]*runtimeapi.Image{"app:1": {Id: "x", Username: "www", Size: 5, Pinned: true}}}
	img, err := newManager(t, images.Config{Service: service}).Ensure(t.Context(), want("a", "app:1", v1.PullNever))
	if wanted := (images.Image{Ref: "x", User: "www", Size: 5, Pinned: true}); err != nil || img != wanted {
		t.Errorf("image = %+v (%v), want %+v", img, err, wanted)
	}
}

func TestRuntimeHandler(t *testing.T) {
	service := &registry{}
	m := newManager(t, images.Config{Service: service})
	plain, kata := want("a", "app:1", v1.PullIfNotPresent), want("a", "app:1", v1.PullIfNotPresent)
	kata.RuntimeHandler = "kata"
	for _, r := range []images.Request{plain, kata, plain, kata} {
		if img, err := m.Ensure(t.Context(), r); err != nil || strings.HasSuffix(img.Ref, " on kata") != (r.RuntimeHandler == "kata") {
			t.Errorf("image of handler %q = %v (%v), want its own", r.RuntimeHandler, img, err)
		}
	}
	if got, want := service.pulled(), []string{"app:1", "app:1 on kata"}; !slices.Equal(got, want) {
		t.Errorf("pulls = %q, want %q", got, want)
	}
}

func TestPullReasons(t *testing.T) {
	grpc := func(text string) error { return status.Error(codes.Unknown, text) }
	for _, tc := range []struct {
		name string
		errs []error // of one credential after another
		want string
	}{
		{"other", []error{errBroken}, images.ReasonPull},
		{"registry", []error{errors.New("RegistryUnavailable: 503")}, images.ReasonUnavailable},
		{"registry, from a runtime", []error{grpc("RegistryUnavailable: 503")}, images.ReasonUnavailable},
		{"registry, wrapped", []error{fmt.Errorf("pull: %w", grpc("RegistryUnavailable: 503"))}, images.ReasonUnavailable},
		{"signature", []error{grpc("SignatureValidationFailed: no key")}, images.ReasonBadSignature},
		{"the second of two", []error{grpc("401"), grpc("RegistryUnavailable: 503")}, images.ReasonUnavailable},
		{"not in front", []error{grpc("proxy: RegistryUnavailable")}, images.ReasonPull},
	} {
		t.Run(tc.name, func(t *testing.T) {
			left := tc.errs
			service := &registry{refuse: func(string, *runtimeapi.AuthConfig) error {
				err := left[0]
				left = left[1:]
				return err
			}}
			var secrets []*v1.Secret
			for n := range tc.errs {
				secrets = append(secrets, pullSecret(fmt.Sprint("user", n)))
			}
			_, err := newManager(t, images.Config{Service: service}).Ensure(t.Context(), want("a", "registry.example/app", v1.PullAlways, secrets...))
			if got := reason(t, err); got != tc.want {
				t.Errorf("reason of %q = %s, want %s", err, got, tc.want)
			}
		})
	}
}

func TestCredentialsInTurn(t *testing.T) {
	ann, bob, eve := pullSecret("ann"), pullSecret("bob"), pullSecret("eve")
	for _, tc := range []struct {
		name    string
		image   string
		secrets []*v1.Secret
		welcome string
		want    []string
		wrong   string
	}{
		{"none is asked for", "registry.example/app:1", nil, "", []string{"registry.example/app:1"}, ""},
		{"none is for it", "other.example/app:1", []*v1.Secret{ann}, "", []string{"other.example/app:1"}, ""},
		{"the first does", "registry.example/app:1", []*v1.Secret{ann, bob}, "ann", []string{"registry.example/app:1 ann"}, ""},
		{"the second does", "registry.example/app:1", []*v1.Secret{ann, bob, eve}, "bob", []string{"registry.example/app:1 ann", "registry.example/app:1 bob"}, ""},
		{
			"none does", "registry.example/app:1", []*v1.Secret{ann, bob}, "nobody",
			[]string{"registry.example/app:1 ann", "registry.example/app:1 bob"}, "ann is not welcome\nbob is not welcome",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			service := &registry{refuse: func(_ string, auth *runtimeapi.AuthConfig) error {
				if auth.GetUsername() != tc.welcome {
					return fmt.Errorf("%s is not welcome", auth.GetUsername())
				}
				return nil
			}}
			_, err := newManager(t, images.Config{Service: service}).Ensure(t.Context(), want("a", tc.image, v1.PullAlways, tc.secrets...))
			if got := service.pulled(); !slices.Equal(got, tc.want) {
				t.Errorf("pulls = %q, want %q", got, tc.want)
			}
			if (err != nil) != (tc.wrong != "") || (err != nil && !strings.HasSuffix(err.Error(), tc.wrong)) {
				t.Errorf("error = %v, want %q", err, tc.wrong)
			}
		})
	}
}

// ring is a keyring with one user, and a complaint.
type ring string

func (r ring) Credentials(context.Context, string) ([]*runtimeapi.AuthConfig, error) {
	if r == "" {
		return nil, errors.New("the keyring is lost")
	}
	return []*runtimeapi.AuthConfig{{Username: string(r)}}, nil
}

func TestKeyringsComeAfterSecrets(t *testing.T) {
	service := &registry{refuse: func(_ string, auth *runtimeapi.AuthConfig) error {
		if auth.GetUsername() != "eve" {
			return errors.New("not welcome")
		}
		return nil
	}}
	m := newManager(t, images.Config{Service: service, Keyrings: []images.Keyring{ring("bob"), ring(""), ring("eve"), ring("joe")}})
	if _, err := m.Ensure(t.Context(), want("a", "registry.example/app:1", v1.PullAlways, pullSecret("ann"))); err != nil {
		t.Fatal(err)
	}
	const image = "registry.example/app:1 "
	if got := service.pulled(); !slices.Equal(got, []string{image + "ann", image + "bob", image + "eve"}) {
		t.Errorf("pulls = %q, want those of the secret, and then of the keyrings until one does", got)
	}
}

func TestBadSecrets(t *testing.T) {
	other := &v1.Secret{Data: map[string][]byte{"token": []byte("x")}}
	other.Namespace, other.Name = "prod", "other"
	broken := &v1.Secret{Data: map[string][]byte{v1.DockerConfigJsonKey: []byte("{")}}
	broken.Namespace, broken.Name = "prod", "broken"

	t.Run("of another kind", func(t *testing.T) {
		service, told := &registry{}, &events{}
		m := newManager(t, images.Config{Service: service, Events: told})
		if _, err := m.Ensure(t.Context(), want("a", "registry.example/app:1", v1.PullAlways, other, pullSecret("ann"), other)); err != nil {
			t.Error(err)
		}
		if got, want := service.pulled(), []string{"registry.example/app:1 ann"}; !slices.Equal(got, want) {
			t.Errorf("pulls = %q, want %q", got, want)
		}
		warnings := slices.DeleteFunc(told.take(), func(e string) bool { return !strings.HasPrefix(e, "Warning") })
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "Warning FailedToRetrieveImagePullSecret: pull secret prod/other: ") {
			t.Errorf("warnings = %q, want one of the secret", warnings)
		}
	})
	t.Run("not there", func(t *testing.T) {
		service, told := &registry{refuse: func(string, *runtimeapi.AuthConfig) error { return errors.New("401 Unauthorized") }}, &events{}
		m := newManager(t, images.Config{Service: service, Events: told})
		r := want("a", "registry.example/app:1", v1.PullAlways, pullSecret("ann"))
		r.Pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: r.Secrets[0].Name}, {Name: "nosuch"}}
		_, err := m.Ensure(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), "401 Unauthorized; missing pull secrets: nosuch") {
			t.Errorf("error %v", err)
		}
		if all := told.take(); !slices.ContainsFunc(all, func(e string) bool {
			return strings.HasPrefix(e, "Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (nosuch);")
		}) {
			t.Errorf("events %q", all)
		}
	})
	t.Run("not understood", func(t *testing.T) {
		service, told := &registry{}, &events{}
		m := newManager(t, images.Config{Service: service, Events: told})
		_, err := m.Ensure(t.Context(), want("a", "registry.example/app:1", v1.PullAlways, broken, pullSecret("ann")))
		const text = `pull secret prod/broken: .dockerconfigjson: not valid JSON`
		if reason(t, err) != images.ReasonPull || err.Error() != text {
			t.Errorf("error = %v, want %s", err, text)
		}
		if got := service.pulled(); len(got) > 0 {
			t.Errorf("pulls = %q, want none", got)
		}
		if got, want := told.take(), []string{`Warning Failed: Failed to pull image "registry.example/app:1": ` + text}; !slices.Equal(got, want) {
			t.Errorf("events = %q, want %q", got, want)
		}
		if _, err = m.Ensure(t.Context(), want("a", "registry.example/app:1", v1.PullAlways, broken)); reason(t, err) != images.ReasonPullBackOff {
			t.Errorf("error = %v, want it held back", err)
		}
	})
	t.Run("not asked of an image that is there", func(t *testing.T) {
		service := &registry{}
		service.put("registry.example/app:1")
		if _, err := newManager(t, images.Config{Service: service}).Ensure(t.Context(), want("a", "registry.example/app:1", v1.PullIfNotPresent, broken)); err != nil {
			t.Error(err)
		}
	})
}

func TestNew(t *testing.T) {
	service := &registry{}
	for _, tc := range []struct {
		name string
		cfg  images.Config
		want []string
	}{
		{"service", images.Config{}, []string{"Config.Service is required"}},
		{"negative bounds", images.Config{Service: service, QPS: -1, Burst: -2, Parallel: -3}, []string{"Config.QPS -1, Burst -2, Parallel -3 and ParallelPerRegistry 0"}},
		{"no bound per registry", images.Config{Service: service, ParallelPerRegistry: -1}, []string{"ParallelPerRegistry -1"}},
		{"relative records", images.Config{Service: service, Records: "image_manager"}, []string{`Config.Records "image_manager": want an absolute path`}},
		{"verify without records", images.Config{Service: service, Verify: images.AlwaysVerify}, []string{"Config.Records is required for Config.Verify AlwaysVerify"}},
		{"unknown verify", images.Config{Service: service, Records: "/x", Verify: "Sometimes"}, []string{`Config.Verify "Sometimes": want NeverVerify, `}},
		{"bad pattern", images.Config{Service: service, Records: "/x", Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"a", "b:1"}}, []string{`Config.Allowlist[1] "b:1": want`}},
		{"all at once", images.Config{Parallel: -1}, []string{"Service", "Parallel -1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := images.New(tc.cfg)
			if m != nil || err == nil {
				t.Fatalf("manager %v, error %v; want an error", m, err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error = %v, want %q in it", err, w)
				}
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	service := &registry{size: 1 << 20}
	service.refuse = func(image string, _ *runtimeapi.AuthConfig) error {
		if image == "gone:1" {
			return errBroken
		}
		return nil
	}
	m := newManager(t, images.Config{Service: service, Metrics: reg})
	_, _ = m.Ensure(t.Context(), want("a", "gone:1", v1.PullAlways))
	for _, p := range []v1.PullPolicy{v1.PullNever, v1.PullIfNotPresent, v1.PullIfNotPresent, v1.PullAlways} {
		_, _ = m.Ensure(t.Context(), want("a", "app", p))
	}
	got := gather(t, reg)
	const ensure = "kubelet_image_manager_ensure_image_requests_total "
	for name, want := range map[string]float64{
		// present_locally, pull_policy, pull_required
		ensure + "false never true": 1, ensure + "false ifnotpresent true": 1, ensure + "true ifnotpresent false": 1,
		ensure + "unknown always true": 2, "kubelet_image_pull_duration_seconds 0-10MB": 2, "kubelet_image_pull_duration_seconds N/A": 1,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	if _, err := images.New(images.Config{Service: service, Metrics: reg}); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}

// gather returns all values by name and labels.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got[f.GetName()+" "+strings.Join(labels, " ")] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return got
}

func TestEnsureEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := newManager(t, images.Config{Service: &registry{took: time.Hour}})
	if _, err := m.Ensure(ctx, want("a", "app", v1.PullAlways)); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that of the context", err)
	}
}
