package bundle_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/bundle"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	nodebundle "github.com/nodewright/nodewright/nodeagent/bundle"
	"github.com/nodewright/nodewright/podmgr"
)

func build(t *testing.T, args string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Build([]podmgr.ManifestFile{{Name: "web.yaml", Data: fmt.Appendf(nil,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: 'registry.example/app:1', args: [%s]}]}\n", args)}},
		bundle.Rollout{HealthyWithin: metav1.Duration{Duration: 3 * time.Second}, ReadyFor: metav1.Duration{Duration: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A whole node over a runtime in memory takes bundles of its socket and of a registry with the
// node's credentials, and rolls back what does not become ready.
func TestNode(t *testing.T) {
	dir, err := os.MkdirTemp("", "nwb") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	fake := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "edge" || password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic realm=fleet")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	ref := host + "/fleet/shop:prod"
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	auth := base64.StdEncoding.EncodeToString([]byte("edge:secret"))
	if err := os.WriteFile(filepath.Join(dir, "root", "config.json"), fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, host, auth), 0o600); err != nil {
		t.Fatal(err)
	}

	flags := kubeletconfig.NewFlags()
	flags.RootDir, flags.Hostname = filepath.Join(dir, "root"), "n"
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	no, none := false, int32(0)
	conf.PodLogsDir, conf.EnableServer, conf.HealthzPort, conf.ResolverConfig = filepath.Join(dir, "logs"), &no, &none, new(string)
	conf.FailSwapOn, conf.FailCgroupV1, conf.CgroupsPerQOS, conf.EnforceNodeAllocatable, conf.EvictionHard = &no, &no, &no, nil, map[string]string{}
	rt := critest.New()
	rt.OfferAll()
	socket := filepath.Join(dir, "s")
	var refused error
	o := nodeagent.Options{
		Config: conf, Runtime: rt, Images: rt, Services: []nodeagent.Service{nodeagent.LocalSocket},
		Settings: nodeagent.Settings{Socket: socket, LeaveHost: true, ClaimsDir: nodeagent.NoClaims, ContainerLogs: "-"},
	}
	nodebundle.Attach(&o, nodebundle.Config{Verify: func(_ context.Context, from, _ string, _ func(context.Context, string, string, int64) ([]byte, error)) error {
		if from != "" {
			return refused
		}
		return nil
	}})
	n, err := nodeagent.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer ended.Wait()
	defer end()
	<-n.Up()
	cl := local.NewClient(socket)
	until := func(what string, done func(bundle.Status) bool) bundle.Status {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			s, err := nodebundle.Status(t.Context(), cl)
			if err == nil && done(s) {
				return s
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v, %v", what, s, err)
			}
		}
	}

	if _, err := nodebundle.Rollback(t.Context(), cl); err == nil || !strings.Contains(err.Error(), bundle.ErrNoBefore.Error()) {
		t.Errorf("rollback of nothing: %v", err)
	}
	good, bad := build(t, "sleep, forever"), build(t, "exit, '3'")
	if err := nodebundle.Apply(t.Context(), cl, good); err != nil {
		t.Fatal(err)
	}
	until("the bundle is good", func(s bundle.Status) bool { return s.Good == good.Digest })

	keys := authn.NewMultiKeychain(keychain{})
	if err := (bundle.Registry{Keychain: keys}).Push(t.Context(), ref, bad); err != nil {
		t.Fatal(err)
	}
	refused = errors.New("no signature")
	if _, err := nodebundle.ApplyRef(t.Context(), cl, ref); err == nil || !strings.Contains(err.Error(), "no signature") {
		t.Errorf("a bundle that is refused: %v", err)
	}
	refused = nil
	if digest, err := nodebundle.ApplyRef(t.Context(), cl, ref); err != nil || digest != bad.Digest {
		t.Fatal(digest, err)
	}
	until("the bundle is on trial", func(s bundle.Status) bool { return s.Running() == bad.Digest })
	if err := nodebundle.Apply(t.Context(), cl, good); err == nil || !strings.Contains(err.Error(), "on trial") {
		t.Errorf("a bundle during a trial: %v", err)
	}
	s := until("the bundle is rejected", func(s bundle.Status) bool { return s.Next == nil })
	if s.Running() != good.Digest || s.Rejected == nil || !strings.Contains(s.Rejected.Reason, "web-n: container c") {
		t.Errorf("%+v", s)
	}
	for body, want := range map[string]string{"text": "invalid bundle", strings.Repeat("x", bundle.MaxArchive+1): "too large"} {
		if err := cl.Post(t.Context(), "/v1/bundle/apply", strings.NewReader(body), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("apply of %d bytes: %v", len(body), err)
		}
	}
}

// keychain has the credentials of who pushes.
type keychain struct{}

func (keychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "edge", Password: "secret"}, nil
}
