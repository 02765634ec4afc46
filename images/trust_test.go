package images_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/images"
)

const app = "registry.example/app:1"

// private is a registry that gives app to those users alone.
func private(users ...string) *registry {
	return &registry{refuse: func(image string, auth *runtimeapi.AuthConfig) error {
		if image == app && !slices.Contains(users, auth.GetUsername()) {
			return errors.New("denied")
		}
		return nil
	}}
}

// secretOf is one of these coordinates with a user for registry.example.
func secretOf(namespace, name, uid, user string) *v1.Secret {
	s := pullSecret(user)
	s.Namespace, s.Name, s.UID = namespace, name, types.UID(uid)
	return s
}

// onDisk are the images of the intents and the records of a directory, each
// with its credentials.
func onDisk(t *testing.T, dir string) (intents, records []string) {
	t.Helper()
	read := func(part string, each func(b []byte)) {
		entries, err := os.ReadDir(filepath.Join(dir, part))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, part, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			each(b)
		}
	}
	read("pulling", func(b []byte) {
		var i kubelet.ImagePullIntent
		if err := json.Unmarshal(b, &i); err != nil {
			t.Fatal(err)
		}
		intents = append(intents, i.Image)
	})
	read("pulled", func(b []byte) {
		var r kubelet.ImagePulledRecord
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		for repository, c := range r.CredentialMapping {
			line := r.ImageRef + " of " + repository + ":"
			if c.NodePodsAccessible {
				line += " node"
			}
			for _, s := range c.KubernetesSecrets {
				line += fmt.Sprintf(" %s/%s(%s)", s.Namespace, s.Name, s.UID)
			}
			records = append(records, line)
		}
	})
	slices.Sort(intents)
	slices.Sort(records)
	return intents, records
}

func checkDisk(t *testing.T, dir string, intents, records []string) {
	t.Helper()
	if i, r := onDisk(t, dir); !slices.Equal(i, intents) || !slices.Equal(r, records) {
		t.Errorf("on disk are intents %q and records %q, want %q and %q", i, r, intents, records)
	}
}

func TestWhoMayUseAnImage(t *testing.T) {
	ann := secretOf("prod", "s", "1", "ann")
	for _, tc := range []struct {
		name   string
		cfg    images.Config
		first  []*v1.Secret // secrets of the pod that pulls; nil means no pull
		image  string       // app
		second []*v1.Secret
		policy v1.PullPolicy
		pulls  int // by the second pod
		reason string
	}{
		{name: "the same secret", first: []*v1.Secret{ann}, second: []*v1.Secret{ann}},
		{name: "its content in another one", first: []*v1.Secret{ann}, second: []*v1.Secret{secretOf("test", "t", "2", "ann")}},
		{name: "none", first: []*v1.Secret{ann}, pulls: 1, reason: images.ReasonPull},
		{name: "another, which is good too", first: []*v1.Secret{ann}, second: []*v1.Secret{secretOf("prod", "t", "2", "bob")}, pulls: 1},
		{name: "another, which is bad", first: []*v1.Secret{ann}, second: []*v1.Secret{secretOf("prod", "t", "2", "eve")}, pulls: 1, reason: images.ReasonPull},
		{name: "the same with a new content, good", first: []*v1.Secret{ann}, second: []*v1.Secret{secretOf("prod", "s", "1", "bob")}, pulls: 1},
		{name: "the same with a new content, bad", first: []*v1.Secret{ann}, second: []*v1.Secret{secretOf("prod", "s", "1", "eve")}, pulls: 1, reason: images.ReasonPull},
		{name: "two, the second is known", first: []*v1.Secret{ann}, second: []*v1.Secret{secretOf("prod", "t", "2", "eve"), ann}},
		{name: "none, never", first: []*v1.Secret{ann}, policy: v1.PullNever, reason: images.ReasonNeverPull},
		{name: "the same, never", first: []*v1.Secret{ann}, second: []*v1.Secret{ann}, policy: v1.PullNever},
		{name: "none, of a public image", image: "registry.example/public:1", first: []*v1.Secret{}},
		{name: "none, of one that the node's credentials opened", first: []*v1.Secret{}, cfg: images.Config{Keyrings: []images.Keyring{ring("ann")}}},
		{name: "preloaded"},
		{name: "preloaded, always verify", cfg: images.Config{Verify: images.AlwaysVerify}, second: []*v1.Secret{ann}, pulls: 1},
		{name: "preloaded, always verify, never pull", cfg: images.Config{Verify: images.AlwaysVerify}, second: []*v1.Secret{ann}, policy: v1.PullNever, reason: images.ReasonNeverPull},
		{name: "preloaded, allowed", cfg: images.Config{Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"registry.example/*"}}},
		{name: "preloaded, not allowed", cfg: images.Config{Verify: images.NeverVerifyAllowlistedImages, Allowlist: []string{"other.example/*"}}, pulls: 1, reason: images.ReasonPull},
		{name: "none, never verify", first: []*v1.Secret{ann}, cfg: images.Config{Verify: images.NeverVerify}},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, restarted), func(t *testing.T) {
				service, told := private("ann", "bob"), &events{}
				cfg := tc.cfg
				cfg.Service, cfg.Events, cfg.Records = service, told, t.TempDir()
				if tc.image == "" {
					tc.image = app
				}
				m := newManager(t, cfg)
				if tc.first == nil {
					service.put(tc.image)
				} else if _, err := m.Ensure(t.Context(), want("a", tc.image, v1.PullIfNotPresent, tc.first...)); err != nil {
					t.Fatal(err)
				}
				if restarted {
					m = newManager(t, cfg)
				}
				before := len(service.pulled())
				told.take()
				if tc.policy == "" {
					tc.policy = v1.PullIfNotPresent
				}
				_, err := m.Ensure(t.Context(), want("b", tc.image, tc.policy, tc.second...))
				if got := reason(t, err); got != tc.reason {
					t.Errorf("error = %v, want reason %q", err, tc.reason)
				}
				if got := len(service.pulled()) - before; got != tc.pulls {
					t.Errorf("%d pulls, want %d", got, tc.pulls)
				}
				present := slices.ContainsFunc(told.take(), func(e string) bool { return strings.Contains(e, "already present") })
				if present != (tc.pulls == 0 && tc.reason == "") {
					t.Errorf("told that it is present: %t", present)
				}
				// Whoever was let in by the registry is known from now on.
				if tc.reason == "" {
					before = len(service.pulled())
					if _, err := m.Ensure(t.Context(), want("b", tc.image, tc.policy, tc.second...)); err != nil || len(service.pulled()) > before {
						t.Errorf("the second time: %v and %d pulls, want none", err, len(service.pulled())-before)
					}
				}
			})
		}
	}
}

// A pull to verify credentials looks like any other; and with policy Never the pod does not learn
// that the image exists.
func TestTellingOfAnImageThatIsNotForThePod(t *testing.T) {
	service, told := private("ann", "bob"), &events{}
	m := newManager(t, images.Config{Service: service, Events: told, Records: t.TempDir()})
	if _, err := m.Ensure(t.Context(), want("a", app, v1.PullIfNotPresent, pullSecret("ann"))); err != nil {
		t.Fatal(err)
	}
	told.take()
	if _, err := m.Ensure(t.Context(), want("b", app, v1.PullIfNotPresent, pullSecret("bob"))); err != nil {
		t.Fatal(err)
	}
	if got, want := told.take(), []string{`Normal Pulling: Pulling image "` + app + `"`, `Normal Pulled: Successfully pulled image "` + app + `" in `}; !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("events = %q, want %q", got, want)
	}
	_, here := m.Ensure(t.Context(), want("c", app, v1.PullNever))
	saidOfHere := told.take()
	service.mu.Lock()
	delete(service.here, app)
	service.mu.Unlock()
	_, gone := m.Ensure(t.Context(), want("c", app, v1.PullNever))
	saidOfGone := told.take()
	if reason(t, here) != images.ReasonNeverPull || here.Error() != gone.Error() || !slices.Equal(saidOfHere, saidOfGone) {
		t.Errorf("of one that is here: %v, %q; of one that is not: %v, %q; want the same", here, saidOfHere, gone, saidOfGone)
	}
}

func TestASharedPullIsOnRecordForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := private("ann")
		service.took = time.Minute
		dir := t.TempDir()
		m := newManager(t, images.Config{Service: service, Records: dir})
		eve := func(n string) *v1.Secret { return secretOf(n, "eve", "9", "eve") } // tried first, and of no use
		if err := errors.Join(together(t, m,
			want("a", app, v1.PullAlways, eve("x"), secretOf("x", "s", "1", "ann")),
			want("b", app, v1.PullAlways, eve("y"), secretOf("y", "s", "2", "ann")),
			want("c", app, v1.PullAlways, eve("y"), secretOf("y", "s", "2", "ann")),
		)...); err != nil {
			t.Fatal(err)
		}
		if n := len(service.pulled()); n != 2 {
			t.Errorf("%d pulls, want one with each credential", n)
		}
		checkDisk(t, dir, nil, []string{"sha256-of-" + app + " of registry.example/app: x/s(1) y/s(2)"})
	})
}

func TestAPullIsTheNodesForWhoHasItFromThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := private("ann")
		service.took = time.Minute
		dir := t.TempDir()
		m := newManager(t, images.Config{Service: service, Records: dir, Keyrings: []images.Keyring{sharing{}}})
		if err := errors.Join(together(t, m, want("a", app, v1.PullAlways, pullSecret("ann")), want("b", app, v1.PullAlways))...); err != nil {
			t.Fatal(err)
		}
		checkDisk(t, dir, nil, []string{"sha256-of-" + app + " of registry.example/app: node"})
	})
}

// sharing is a keyring with ann's credential.
type sharing struct{}

func (sharing) Credentials(context.Context, string) ([]*runtimeapi.AuthConfig, error) {
	return []*runtimeapi.AuthConfig{{Username: "ann", Password: "x"}}, nil
}

func TestIntents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := private("ann")
		service.each = func(image string) time.Duration { return time.Duration(len(image)) * time.Minute }
		dir := t.TempDir()
		m := newManager(t, images.Config{Service: service, Records: dir, ParallelPerRegistry: 2})
		ann := pullSecret("ann")
		asks(t, m, want("a", app, v1.PullAlways, ann), want("b", app, v1.PullAlways), want("c", "registry.example/long/app:1", v1.PullAlways))
		checkDisk(t, dir, []string{app}, nil) // one write, and none for queued pulls
		time.Sleep(time.Duration(len(app))*time.Minute + time.Second)
		synctest.Wait()
		checkDisk(t, dir, []string{"registry.example/long/app:1"}, []string{"sha256-of-" + app + " of registry.example/app: prod/of-ann()"})
		time.Sleep(time.Hour)
		public := "sha256-of-registry.example/long/app:1 of registry.example/long/app: node"
		checkDisk(t, dir, nil, []string{"sha256-of-" + app + " of registry.example/app: prod/of-ann()", public})
	})
}

func TestIntentsOfOneImageAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &registry{took: time.Minute}
		dir := t.TempDir()
		m := newManager(t, images.Config{Service: service, Records: dir})
		asks(t, m, want("a", app, v1.PullAlways, pullSecret("ann")))
		time.Sleep(30 * time.Second)
		asks(t, m, want("b", app, v1.PullAlways, pullSecret("bob")))
		time.Sleep(45 * time.Second)
		synctest.Wait()
		first := []string{"sha256-of-" + app + " of registry.example/app: prod/of-ann()"}
		checkDisk(t, dir, []string{app}, first)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		checkDisk(t, dir, nil, []string{first[0] + " prod/of-bob()"})
	})
}

func TestNoIntentInBackoff(t *testing.T) {
	service := private("ann")
	dir := t.TempDir()
	m := newManager(t, images.Config{Service: service, Records: dir})
	for _, wanted := range []string{images.ReasonPull, images.ReasonPullBackOff} {
		_, err := m.Ensure(t.Context(), want("a", app, v1.PullAlways))
		if reason(t, err) != wanted {
			t.Errorf("error = %v, want %s", err, wanted)
		}
		checkDisk(t, dir, nil, nil)
	}
}

// While another pulls it, an image that was there before is for everybody, and
// one that has just come is not.
func TestUseDuringAPull(t *testing.T) {
	for _, preloaded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			service := private("ann")
			service.took = time.Minute
			if preloaded {
				service.put(app)
			}
			m := newManager(t, images.Config{Service: service, Records: t.TempDir()})
			asks(t, m, want("a", app, v1.PullAlways, pullSecret("ann")))
			service.mu.Lock()
			service.put(app) // the runtime has it, and has not told yet
			service.mu.Unlock()
			_, err := m.Ensure(t.Context(), want("b", app, v1.PullNever))
			if got := reason(t, err); (got == "") != preloaded {
				t.Errorf("preloaded %t: error = %v", preloaded, err)
			}
			time.Sleep(time.Hour)
		})
	}
}

// putIntent writes the files that a crash during a pull leaves.
func putIntent(t *testing.T, dir, image string) {
	t.Helper()
	i := kubelet.ImagePullIntent{Image: image}
	i.APIVersion, i.Kind = kubelet.SchemeGroupVersion.String(), "ImagePullIntent"
	b, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "pulling"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pulling", fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(image)))), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestIntentsOfACrash(t *testing.T) {
	const ref = "sha256-of-" + app
	for _, tc := range []struct {
		name    string
		service func(r *registry)
		records []string
		reason  string // for another pod that requests the image by another name
	}{
		{"it came", func(r *registry) { r.put(app) }, []string{ref + " of registry.example/app:"}, images.ReasonPull},
		{"it did not", func(*registry) {}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			service, dir := private("ann"), t.TempDir()
			tc.service(service)
			const alias = "registry.example/app:stable"
			service.put(alias)
			service.here[alias].Id = ref
			service.refuse = func(string, *runtimeapi.AuthConfig) error { return errBroken }
			putIntent(t, dir, app)
			m := newManager(t, images.Config{Service: service, Records: dir})
			checkDisk(t, dir, []string{app}, nil) // New has no side effects
			_, err := m.Ensure(t.Context(), want("a", alias, v1.PullIfNotPresent))
			if got := reason(t, err); got != tc.reason {
				t.Errorf("error = %v, want reason %q", err, tc.reason)
			}
			checkDisk(t, dir, nil, tc.records)
		})
	}
}

func TestIntentsOfACrashAreOfManyAtOnce(t *testing.T) {
	dir, service := t.TempDir(), &registry{}
	var all []string
	for n := range 20 {
		image := fmt.Sprint("registry.example/app:", n)
		putIntent(t, dir, image)
		service.put(image)
		all = append(all, "sha256-of-"+image+" of registry.example/app:")
	}
	slices.Sort(all)
	m := newManager(t, images.Config{Service: service, Records: dir})
	if err := m.Prune(t.Context(), nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	checkDisk(t, dir, nil, all)
}

func TestIntentsWaitForTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, dir := private("ann"), t.TempDir()
		service.put(app, "other:1")
		looks, down := 0, true
		service.inspect = func(image string, _ *runtimeapi.Image) (bool, error) {
			if image != app {
				return true, nil
			}
			looks++
			if down {
				return false, errBroken
			}
			return true, nil
		}
		putIntent(t, dir, app)
		m := newManager(t, images.Config{Service: service, Records: dir})
		for range 10 { // one check, and other pods do not wait
			if _, err := m.Ensure(t.Context(), want("a", "other:1", v1.PullIfNotPresent)); err != nil {
				t.Error(err)
			}
		}
		if looks != 1 {
			t.Errorf("%d looks, want one", looks)
		}
		checkDisk(t, dir, []string{app}, nil)
		down = false
		if _, err := m.Ensure(t.Context(), want("b", app, v1.PullNever)); reason(t, err) != images.ReasonNeverPull {
			t.Errorf("error = %v, want that it is not for this pod", err)
		}
		time.Sleep(time.Minute)
		if _, err := m.Ensure(t.Context(), want("a", "other:1", v1.PullIfNotPresent)); err != nil {
			t.Error(err)
		}
		checkDisk(t, dir, nil, []string{"sha256-of-" + app + " of registry.example/app:"})
	})
}

// A pull that fails, or is given up, and yet brings the image.
func TestAPullWhoseEndIsNotKnown(t *testing.T) {
	for _, tc := range []struct {
		name      string
		preloaded bool
		brings    bool
		want      []string
	}{
		{"brings it", false, true, []string{"sha256-of-" + app + " of registry.example/app:"}},
		{"brings nothing", false, false, nil},
		{"leaves what was there", true, false, nil},
	} {
		for _, cancelled := range []bool{true, false} {
			t.Run(fmt.Sprint(tc.name, cancelled), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					service, dir := &registry{took: time.Minute}, t.TempDir()
					service.refuse = func(string, *runtimeapi.AuthConfig) error { return errBroken }
					if tc.preloaded {
						service.put(app)
					}
					m := newManager(t, images.Config{Service: service, Records: dir})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() { _, _ = m.Ensure(ctx, want("a", app, v1.PullAlways, pullSecret("ann"))) }()
					synctest.Wait()
					if tc.brings {
						service.mu.Lock()
						service.put(app)
						service.mu.Unlock()
					}
					if cancelled {
						cancel()
					}
					time.Sleep(time.Hour)
					checkDisk(t, dir, nil, tc.want)
					_, err := m.Ensure(t.Context(), want("b", app, v1.PullNever))
					if got := reason(t, err); (got == "") != tc.preloaded {
						t.Errorf("another pod: %v", err)
					}
				})
			})
		}
	}
}

func TestNoPullWithoutAnIntent(t *testing.T) {
	for _, tc := range []struct {
		verify images.Verify
		pulls  int
		reason string
	}{
		{"", 0, images.ReasonPull},
		{images.NeverVerify, 1, ""},
	} {
		service, dir := &registry{}, t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pulling"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		m := newManager(t, images.Config{Service: service, Records: dir, Verify: tc.verify})
		_, err := m.Ensure(t.Context(), want("a", app, v1.PullIfNotPresent))
		if got := reason(t, err); got != tc.reason {
			t.Errorf("%q: error = %v, want reason %q", tc.verify, err, tc.reason)
		}
		if n := len(service.pulled()); n != tc.pulls {
			t.Errorf("%q: %d pulls, want %d", tc.verify, n, tc.pulls)
		}
	}
}

// When the record cannot be written, the pod has its image, this process knows
// of it, and the intent keeps the next one from taking it for preloaded.
func TestAPullWithoutARecord(t *testing.T) {
	service, dir := private("ann"), t.TempDir()
	ann := pullSecret("ann")
	m := newManager(t, images.Config{Service: service, Records: dir})
	if err := m.Prune(t.Context(), nil, time.Time{}); err != nil { // it has read the records
		t.Fatal(err)
	}
	blocked := filepath.Join(dir, "pulled")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Ensure(t.Context(), want("a", app, v1.PullIfNotPresent, ann)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Ensure(t.Context(), want("b", app, v1.PullIfNotPresent, ann)); err != nil || len(service.pulled()) != 1 {
		t.Errorf("the second pod: %v after %d pulls, want that the secret is known", err, len(service.pulled()))
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	checkDisk(t, dir, []string{app}, nil)
	next := newManager(t, images.Config{Service: service, Records: dir})
	if _, err := next.Ensure(t.Context(), want("c", app, v1.PullNever)); reason(t, err) != images.ReasonNeverPull {
		t.Errorf("after a restart: %v, want that it is not for everybody", err)
	}
	checkDisk(t, dir, nil, []string{"sha256-of-" + app + " of registry.example/app:"})
}

func TestPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, dir := &registry{}, t.TempDir()
		m := newManager(t, images.Config{Service: service, Records: dir})
		pull := func(m *images.Manager, names ...string) {
			for _, n := range names {
				if _, err := m.Ensure(t.Context(), want("a", n, v1.PullAlways)); err != nil {
					t.Fatal(err)
				}
			}
		}
		record := func(n string) string { return "sha256-of-r.example/" + n + ":1 of r.example/" + n + ": node" }
		pull(m, "r.example/a:1", "r.example/b:1", "r.example/c:1")
		time.Sleep(time.Hour)
		m = newManager(t, images.Config{Service: service, Records: dir}) // existing records count as well
		since := time.Now()
		time.Sleep(time.Second)
		pull(m, "r.example/b:1", "r.example/d:1") // b's record does not change by it
		prune := func(since time.Time) {
			if err := m.Prune(t.Context(), []string{"sha256-of-r.example/c:1"}, since); err != nil {
				t.Fatal(err)
			}
		}
		prune(since)
		checkDisk(t, dir, nil, []string{record("b"), record("c"), record("d")})
		time.Sleep(time.Second)
		prune(time.Now())
		checkDisk(t, dir, nil, []string{record("c")})
	})
}

func TestPruneWithoutRecords(t *testing.T) {
	if err := newManager(t, images.Config{Service: &registry{}}).Prune(t.Context(), nil, time.Now()); err != nil {
		t.Error(err)
	}
}

func TestPruneDropsWhatCannotBeRead(t *testing.T) {
	service, dir := &registry{}, t.TempDir()
	for _, image := range []string{"a:1", "b:1"} {
		path := filepath.Join(dir, "pulled", fmt.Sprintf("sha256-%x", sha256.Sum256([]byte("sha256-of-"+image))))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newManager(t, images.Config{Service: service, Records: dir})
	if err := m.Prune(t.Context(), []string{"sha256-of-b:1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "pulled")); err != nil || len(left) != 1 {
		t.Errorf("left are %v (%v), want one", left, err)
	}
	service.put("b:1")
	if _, err := m.Ensure(t.Context(), want("a", "b:1", v1.PullIfNotPresent)); err != nil || len(service.pulled()) != 1 {
		t.Errorf("an image with a broken record: %v after %d pulls, want one", err, len(service.pulled()))
	}
	checkDisk(t, dir, nil, []string{"sha256-of-b:1 of docker.io/library/b: node"})
}

func TestServiceAccounts(t *testing.T) {
	service, dir := private("ann"), t.TempDir()
	service.put(app)
	r := kubelet.ImagePulledRecord{
		ImageRef:          "sha256-of-" + app,
		CredentialMapping: map[string]kubelet.ImagePullCredentials{"registry.example/app": {KubernetesServiceAccounts: []kubelet.ImagePullServiceAccount{{UID: "1", Namespace: "prod", Name: "web"}}}},
	}
	r.APIVersion, r.Kind = kubelet.SchemeGroupVersion.String(), "ImagePulledRecord"
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "pulled"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pulled", fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(r.ImageRef)))), b, 0o600); err != nil {
		t.Fatal(err)
	}
	m := newManager(t, images.Config{Service: service, Records: dir})
	for uid, wanted := range map[string]string{"1": "", "2": images.ReasonNeverPull, "": images.ReasonNeverPull} {
		request := want("a", app, v1.PullNever)
		if uid != "" {
			request.ServiceAccount = &images.ServiceAccount{UID: uid, Namespace: "prod", Name: "web"}
		}
		if _, err := m.Ensure(t.Context(), request); reason(t, err) != wanted {
			t.Errorf("account %q: %v, want reason %q", uid, err, wanted)
		}
	}
}

func TestMetricsOfRecords(t *testing.T) {
	reg := prometheus.NewRegistry()
	service, dir := private("ann"), t.TempDir()
	service.put("preloaded:1")
	putIntent(t, dir, "gone:1")
	m := newManager(t, images.Config{Service: service, Records: dir, Metrics: reg})
	for _, r := range []images.Request{
		want("a", app, v1.PullIfNotPresent, pullSecret("ann")), want("a", app, v1.PullIfNotPresent, pullSecret("ann")),
		want("b", app, v1.PullIfNotPresent), want("c", "preloaded:1", v1.PullIfNotPresent),
	} {
		_, _ = m.Ensure(t.Context(), r)
	}
	got := gather(t, reg)
	const checks = "kubelet_imagemanager_image_mustpull_checks_total "
	for name, want := range map[string]float64{
		checks + "credentialRecordFound": 1, checks + "mustAuthenticate": 1, checks + "credentialPolicyAllowed": 1,
		"kubelet_imagemanager_ondisk_pullintents ": 0, "kubelet_imagemanager_ondisk_pulledrecords ": 1,
		"kubelet_image_manager_ensure_image_requests_total true ifnotpresent true": 1,
	} {
		if v, ok := got[name]; v != want || !ok {
			t.Errorf("%s = %v (%t), want %v", name, v, ok, want)
		}
	}
}
