package podsync_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

func bundlesStart(t *testing.T, srv *kubeapitest.Server, m podsync.BundlesMemory) (*podsync.Bundles, func()) {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := podsync.NewBundles(podsync.BundlesConfig{Client: c, Memory: m})
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, b.Run)
	synctest.Wait()
	return b, stop
}

func roots(names ...string) string {
	var out strings.Builder
	for _, n := range names {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(n)}))
	}
	return out.String()
}

func ctb(name, signer, team string, certs ...string) *certificatesv1beta1.ClusterTrustBundle {
	return &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: "# " + name + "\n" + roots(certs...)},
	}
}

// bundlesSays is an answer in words: the certificates, or why there are none.
func bundlesSays(t *testing.T, b *podsync.Bundles, want plugins.Bundle) string {
	t.Helper()
	out, err := b.Bundle(t.Context(), want)
	if err != nil {
		if errors.Is(err, plugins.ErrNotFound) {
			return "not found"
		}
		return err.Error()
	}
	var got []string
	for rest := out; ; {
		var p *pem.Block
		if p, rest = pem.Decode(rest); p == nil {
			break
		}
		got = append(got, string(p.Bytes))
	}
	if len(got) > 1 && got[0] > got[1] {
		got[0], got[1] = got[1], got[0]
	}
	return strings.Join(got, " ")
}

func TestBundles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		srv.Create(ctb("plain", "", "x", "p"))
		srv.Create(ctb("s:1", "s", "x", "a", "b"))
		srv.Create(ctb("s:2", "s", "y", "b"))
		srv.Create(ctb("empty", "e", "x"))
		b, stop := bundlesStart(t, srv, nil)
		defer stop()
		time.Sleep(time.Hour)
		if n := len(srv.Requests()); n != 0 {
			t.Errorf("asked %d times for what nobody wants", n)
		}
		everything := &metav1.LabelSelector{}
		for _, tc := range []struct {
			name string
			want plugins.Bundle
			says string
		}{
			{"by name", plugins.Bundle{Name: "plain"}, "p"},
			{"by name, signed", plugins.Bundle{Name: "s:1"}, "a b"},
			{"no such name", plugins.Bundle{Name: "none"}, "not found"},
			{"empty", plugins.Bundle{Name: "empty"}, ""},
			{"by signer, without a selector", plugins.Bundle{Signer: "s"}, "not found"},
			{"by signer, all", plugins.Bundle{Signer: "s", Selector: everything}, "a b"},
			{"by signer and label", plugins.Bundle{Signer: "s", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "y"}}}, "b"},
			{"by signer and a label that none has", plugins.Bundle{Signer: "s", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "z"}}}, "not found"},
			{"no such signer", plugins.Bundle{Signer: "t", Selector: everything}, "not found"},
			{"a selector that is none", plugins.Bundle{Signer: "s", Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}},
				`labelSelector: "Like" is not a valid label selector operator`},
		} {
			if got := bundlesSays(t, b, tc.want); got != tc.says {
				t.Errorf("%s: %q, want %q", tc.name, got, tc.says)
			}
		}
		srv.Put(ctb("plain", "", "x", "q"))
		srv.Remove(kubeapi.ClusterTrustBundles, "", "s:1")
		srv.Create(ctb("new", "", "x", "n"))
		synctest.Wait()
		for name, want := range map[string]string{"plain": "q", "s:1": "not found", "new": "n"} {
			if got := bundlesSays(t, b, plugins.Bundle{Name: name}); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		srv.Stop()
		time.Sleep(time.Hour)
		if got := bundlesSays(t, b, plugins.Bundle{Name: "new"}); got != "n" {
			t.Errorf("without the server: %q", got)
		}
	})
}

func TestAServerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		srv.Create(ctb("plain", "", "x", "p"))
		srv.Hang()
		b, stop := bundlesStart(t, srv, nil)
		defer stop()
		begun := time.Now()
		if got := bundlesSays(t, b, plugins.Bundle{Name: "plain"}); got != "the API server has not answered yet" || time.Since(begun) != 10*time.Second {
			t.Errorf("%q after %v", got, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		if _, err := b.Bundle(ctx, plugins.Bundle{Name: "plain"}); err == nil {
			t.Error("there is an answer")
		}
		srv.Heal()
		time.Sleep(20 * time.Second)
		if got := bundlesSays(t, b, plugins.Bundle{Name: "plain"}); got != "p" {
			t.Errorf("after it came back: %q", got)
		}
	})
}

func TestACallerDoesNotWaitLongerThanItWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		srv.Hang()
		b, stop := bundlesStart(t, srv, nil)
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Bundle(ctx, plugins.Bundle{Name: "plain"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAServerWithoutBundles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		srv.Create(ctb("plain", "", "x", "p"))
		srv.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(http.StatusNotFound), kubeapitest.Any))
		b, stop := bundlesStart(t, srv, nil)
		defer stop()
		begun := time.Now()
		if got := bundlesSays(t, b, plugins.Bundle{Name: "plain"}); !strings.Contains(got, "does not serve ClusterTrustBundles") || time.Since(begun) > time.Second {
			t.Errorf("%q after %v", got, time.Since(begun))
		}
		time.Sleep(time.Hour)
		if n := len(srv.Requests()); n > 1000 {
			t.Errorf("asked %d times in an hour", n)
		}
		srv.Heal()
		time.Sleep(20 * time.Second)
		if got := bundlesSays(t, b, plugins.Bundle{Name: "plain"}); got != "p" {
			t.Errorf("afterwards: %q", got)
		}
	})
}

func TestOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, m := kubeapitest.New(), &checkpointtest.Disk{}
		srv.Create(ctb("plain", "", "x", "p"))
		srv.Create(ctb("s:1", "s", "x", "a", "a", "b"))
		b, stop := bundlesStart(t, srv, m)
		if got := bundlesSays(t, b, plugins.Bundle{Name: "plain"}); got != "p" {
			t.Errorf("%q", got)
		}
		time.Sleep(time.Hour)
		for i := range 10 {
			srv.Put(ctb("plain", "", "x", fmt.Sprint("p", i)))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if m.Count("write") > 3 {
			t.Errorf("written %d times", m.Count("write"))
		}
		stop()
		srv.Stop()

		b, stop = bundlesStart(t, srv, m)
		begun := time.Now()
		if got := bundlesSays(t, b, plugins.Bundle{Name: "plain"}); got != "p9" || time.Since(begun) != 2*time.Second {
			t.Errorf("%q after %v", got, time.Since(begun))
		}
		if got := bundlesSays(t, b, plugins.Bundle{Signer: "s", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}}); got != "a b" {
			t.Errorf("%q", got)
		}
		srv.Remove(kubeapi.ClusterTrustBundles, "", "plain")
		srv.Start()
		time.Sleep(20 * time.Second)
		if got := bundlesSays(t, b, plugins.Bundle{Name: "plain"}); got != "not found" {
			t.Errorf("%q", got)
		}
		stop()
		m.Put("bundles", "{")
		b, stop = bundlesStart(t, srv, m)
		defer stop()
		if got := bundlesSays(t, b, plugins.Bundle{Name: "s:1"}); got != "a b" {
			t.Errorf("with a damaged memory: %q", got)
		}
	})
}

func TestBundlesConfig(t *testing.T) {
	if _, err := podsync.NewBundles(podsync.BundlesConfig{}); err == nil || !strings.Contains(err.Error(), "Client") {
		t.Errorf("got %v", err)
	}
}
