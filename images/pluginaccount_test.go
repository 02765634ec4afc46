package images

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// accounts are service accounts by name; each pod has a token of its own.
type accounts map[string]Account

func (a accounts) Account(_ context.Context, namespace, name string) (Account, error) {
	acc, ok := a[namespace+"/"+name]
	if !ok {
		return Account{}, errors.New("not found")
	}
	return acc, nil
}

func (a accounts) Token(_ context.Context, pod *v1.Pod, audience string) (string, error) {
	if pod.Name == "tokenless" {
		return "", errors.New("the server is away")
	}
	uid := a[pod.Namespace+"/"+pod.Spec.ServiceAccountName].UID
	if pod.Name == "stale" {
		uid = "of-before"
	}
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"kubernetes.io":{"serviceaccount":{"uid":"` + uid + `"}},"aud":"` + audience + `","pod":"` + pod.Name + `"}`))
	return "h." + claims + ".s", nil
}

func podOf(name, account string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{ServiceAccountName: account}}
}

type question struct {
	APIVersion, Image, ServiceAccountToken string
	ServiceAccountAnnotations              map[string]string
}

// asking is a plugin that writes down its questions and answers each with a
// credential of its own.
func asking(t *testing.T, change func(*Plugin), known Accounts) (p *Plugins, asked *[]question) {
	t.Helper()
	plugin := Plugin{
		Name: "p", Match: []string{"r.example"}, CacheDuration: time.Hour,
		Token: &PluginToken{Audience: "reg", RequiredAnnotations: []string{"e/role"}, Required: true, OptionalAnnotations: []string{"e/zone"}},
	}
	if change != nil {
		change(&plugin)
	}
	asked = &[]question{}
	p = &Plugins{cfg: PluginsConfig{Plugins: []Plugin{plugin}, Accounts: known}, cache: map[string]answer{}}
	p.run = func(_ context.Context, _ *Plugin, in []byte) ([]byte, error) {
		var q question
		if err := json.Unmarshal(in, &q); err != nil {
			t.Error(err)
		}
		*asked = append(*asked, q)
		out := response("Registry", "", fmt.Sprintf("u%d", len(*asked)))
		return []byte(strings.Replace(out, pluginVersion, q.APIVersion, 1)), nil
	}
	return p, asked
}

func TestPluginsAskForServiceAccounts(t *testing.T) {
	known := accounts{
		"ns/a":    {UID: "1", Annotations: map[string]string{"e/role": "puller", "e/zone": "z", "other": "secret"}},
		"ns/b":    {UID: "2", Annotations: map[string]string{"e/role": "puller"}},
		"ns/bare": {UID: "3"},
	}
	byAccount := func(p *Plugin) { p.Token.ByAccount = true }
	lax := func(p *Plugin) { p.Token.Required, p.Token.RequiredAnnotations = false, nil }
	for name, tc := range map[string]struct {
		change func(*Plugin)
		pods   []*v1.Pod
		users  string // of each pod, an error as !
		asked  int
	}{
		"by token":                    {nil, []*v1.Pod{podOf("x", "a"), podOf("x", "a"), podOf("y", "a"), podOf("z", "b")}, "u1 u1 u2 u3", 3},
		"by account":                  {byAccount, []*v1.Pod{podOf("x", "a"), podOf("x", "a"), podOf("y", "a"), podOf("z", "b")}, "u1 u1 u1 u2", 2},
		"no account":                  {nil, []*v1.Pod{podOf("x", ""), nil}, "- -", 0},
		"no account, and none wanted": {lax, []*v1.Pod{podOf("x", ""), nil, podOf("y", "bare")}, "u1 u1 u2", 2},
		"not annotated":               {nil, []*v1.Pod{podOf("x", "bare")}, "-", 0},
		"no such account":             {nil, []*v1.Pod{podOf("x", "c")}, "!", 0},
		"no token":                    {nil, []*v1.Pod{podOf("tokenless", "a")}, "!", 0},
		"a token of another account":  {nil, []*v1.Pod{podOf("stale", "a")}, "!", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, asked := asking(t, tc.change, known)
				var users []string
				for _, pod := range tc.pods {
					got, err := p.PodCredentials(t.Context(), "r.example/app", pod)
					switch {
					case err != nil:
						users = append(users, "!")
					case len(got) == 0:
						users = append(users, "-")
					default:
						users = append(users, got[0].Auth.GetUsername())
						want := pod != nil && pod.Spec.ServiceAccountName != ""
						if (got[0].Account != nil) != want || want && got[0].Account.Name != pod.Spec.ServiceAccountName {
							t.Errorf("credential of account %+v", got[0].Account)
						}
					}
				}
				if got := strings.Join(users, " "); got != tc.users || len(*asked) != tc.asked {
					t.Errorf("users %q after %d questions, want %q after %d", got, len(*asked), tc.users, tc.asked)
				}
			})
		})
	}

	p, asked := asking(t, nil, known)
	if _, err := p.PodCredentials(t.Context(), "r.example/app", podOf("x", "a")); err != nil {
		t.Fatal(err)
	}
	q := (*asked)[0]
	if q.ServiceAccountToken == "" || len(q.ServiceAccountAnnotations) != 2 || q.ServiceAccountAnnotations["e/role"] != "puller" || q.ServiceAccountAnnotations["e/zone"] != "z" {
		t.Errorf("asked %+v", q)
	}
	if got := p.PodAccounts(t.Context(), "r.example/app", podOf("x", "a")); len(got) != 1 || got[0] != (ServiceAccount{UID: "1", Namespace: "ns", Name: "a"}) {
		t.Errorf("accounts %+v", got)
	}
	if got := p.PodAccounts(t.Context(), "r.example/app", podOf("x", "bare")); len(got) != 0 || len(*asked) != 1 {
		t.Errorf("accounts %+v, %d questions", got, len(*asked))
	}
	// Without a cluster there are no tokens.
	p, _ = asking(t, nil, nil)
	if got, err := p.PodCredentials(t.Context(), "r.example/app", podOf("x", "a")); len(got) != 0 || err == nil {
		t.Errorf("%v, %v", got, err)
	}
}

// A token that would be remembered for the pods of others is refused.
func TestPluginThatEchoesTheToken(t *testing.T) {
	for _, byAccount := range []bool{false, true} {
		p, _ := asking(t, func(p *Plugin) { p.Token.ByAccount = byAccount }, accounts{"ns/a": {UID: "1", Annotations: map[string]string{"e/role": ""}}})
		p.run = func(_ context.Context, _ *Plugin, in []byte) ([]byte, error) {
			var q question
			_ = json.Unmarshal(in, &q)
			return []byte(`{"apiVersion":"` + pluginVersion + `","kind":"CredentialProviderResponse","cacheKeyType":"Image","auth":{"r.example":{"username":"u","password":"` + q.ServiceAccountToken + `"}}}`), nil
		}
		got, err := p.PodCredentials(t.Context(), "r.example/app", podOf("x", "a"))
		if byAccount != (err != nil) || byAccount != (len(got) == 0) || err != nil && strings.Contains(err.Error(), "h.") {
			t.Errorf("by account %t: %v, %v", byAccount, got, err)
		}
	}
}

// Every version is asked in its own words, and answers in them.
func TestPluginVersions(t *testing.T) {
	for _, version := range append([]string{""}, pluginVersions...) {
		p, asked := asking(t, func(p *Plugin) { p.Token, p.APIVersion = nil, version }, nil)
		if got, err := p.Credentials(t.Context(), "r.example/app"); err != nil || len(got) != 1 {
			t.Errorf("%q: %v, %v", version, got, err)
		}
		if want := version; want != "" && (*asked)[0].APIVersion != want || want == "" && (*asked)[0].APIVersion != pluginVersion {
			t.Errorf("%q: asked in %q", version, (*asked)[0].APIVersion)
		}
		p.run = func(context.Context, *Plugin, []byte) ([]byte, error) {
			return []byte(strings.Replace(response("Image", "", "u"), pluginVersion, "v0", 1)), nil
		}
		clear(p.cache)
		if _, err := p.Credentials(t.Context(), "r.example/app"); err == nil {
			t.Errorf("%q: an answer of another version counts", version)
		}
	}
}

func TestPluginMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	met, err := newPluginMetrics(reg, "sha256:00")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := asking(t, func(p *Plugin) { p.Token = nil }, nil)
	p.met = met
	_, _ = p.Credentials(t.Context(), "r.example/app")
	p.run = func(context.Context, *Plugin, []byte) ([]byte, error) { return nil, errors.New("down") }
	clear(p.cache)
	_, _ = p.Credentials(t.Context(), "r.example/app")
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		m := f.GetMetric()[0]
		got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	for name, want := range map[string]float64{
		"kubelet_credential_provider_plugin_errors_total p": 1, "kubelet_credential_provider_plugin_duration p": 2, "kubelet_credential_provider_config_info sha256:00": 1,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v, of %v", name, got[name], want, got)
		}
	}
}

// An image pulled with a service account's credential may be used by pods of that account.
func TestPullsOfServiceAccountsAreRecorded(t *testing.T) {
	a, b := &ServiceAccount{UID: "1", Namespace: "ns", Name: "a"}, &ServiceAccount{UID: "2", Namespace: "ns", Name: "b"}
	got := usedBy(1, [][]credential{{{account: a}}, {{account: b}}, {{account: a}}, {{secret: &pullSecret{UID: "s"}}}})
	if len(got.KubernetesServiceAccounts) != 2 || len(got.KubernetesSecrets) != 1 || got.NodePodsAccessible {
		t.Errorf("recorded %+v", got)
	}
	if got := usedBy(1, [][]credential{{{account: a}}, {{}}}); !got.NodePodsAccessible {
		t.Errorf("recorded %+v", got)
	}
}

// Tokens have untrusted content.
func FuzzAccountOf(f *testing.F) {
	f.Add("h.e30.s")
	f.Add("h." + base64.RawURLEncoding.EncodeToString([]byte(`{"kubernetes.io":{"serviceaccount":{"uid":"1"}}}`)) + ".s")
	f.Add("...")
	f.Fuzz(func(t *testing.T, token string) {
		if uid := accountOf(token); uid != "" && !strings.Contains(token, ".") {
			t.Errorf("%q is of %q", token, uid)
		}
	})
}
