package kubeletconfig

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	providersHead = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
	plainProvider = "- {name: p, matchImages: [r.example], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n"
)

func TestLoadCredentialProviders(t *testing.T) {
	withTokens := func(attributes string) string {
		return providersHead + strings.Replace(plainProvider, "}", ", tokenAttributes: {"+attributes+"}}", 1)
	}
	for name, tc := range map[string]struct{ content, wrong string }{
		"plain":         {providersHead + plainProvider, ""},
		"older":         {strings.Replace(providersHead, "/v1\n", "/v1alpha1\n", 1) + strings.ReplaceAll(plainProvider, "io/v1", "io/v1beta1"), ""},
		"tokens":        {withTokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [e/Role]"), ""},
		"by account":    {withTokens("serviceAccountTokenAudience: a, cacheType: ServiceAccount, requireServiceAccount: false, optionalServiceAccountAnnotationKeys: [e/role]"), ""},
		"no version":    {strings.Replace(providersHead, "/v1\n", "/v2\n", 1) + plainProvider, `CredentialProviderConfig of "kubelet.config.k8s.io/v2": want`},
		"another group": {strings.Replace(providersHead, "kubelet.config", "config", 1) + plainProvider, "want CredentialProviderConfig of"},
		"old tokens": {
			strings.ReplaceAll(withTokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true"), "provider.kubelet.k8s.io/v1", "provider.kubelet.k8s.io/v1beta1"),
			"providers[0].tokenAttributes: with apiVersion",
		},
		"no audience":      {withTokens("cacheType: Token, requireServiceAccount: true"), "serviceAccountTokenAudience is required"},
		"no word on it":    {withTokens("serviceAccountTokenAudience: a, cacheType: Token"), "requireServiceAccount is required"},
		"no cache type":    {withTokens("serviceAccountTokenAudience: a, requireServiceAccount: true"), `cacheType: "": want ServiceAccount or Token`},
		"keys for nobody":  {withTokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [k]"), "requireServiceAccount: true"},
		"a key twice":      {withTokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [k], optionalServiceAccountAnnotationKeys: [k]"), "want each key once"},
		"a key that is no": {withTokens("serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: ['a b']"), "requiredServiceAccountAnnotationKeys: "},
		"a name twice":     {providersHead + plainProvider + plainProvider, `provider "p" is defined twice`},
	} {
		dir := files(t, map[string]string{"c.yaml": tc.content})
		got, err := LoadCredentialProviders(filepath.Join(dir, "c.yaml"))
		if tc.wrong == "" && (err != nil || len(got.Providers) != 1) || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, tc.wrong)
		}
	}
}

// A directory is its files in the order of their names, with the kubelet's hash.
func TestLoadCredentialProvidersOfADirectory(t *testing.T) {
	second := strings.Replace(providersHead+plainProvider, "name: p", "name: q", 1)
	dir := files(t, map[string]string{"a.yaml": providersHead + plainProvider, "b.json": "", "c.txt": "no", "d.yml/e.yaml": "no"})
	if err := os.WriteFile(filepath.Join(dir, "b.json"), []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadCredentialProviders(dir)
	if err != nil || len(got.Providers) != 2 || got.Providers[0].Name != "p" || got.Providers[1].Name != "q" {
		t.Fatalf("%+v, %v", got, err)
	}
	sum := sha256.New()
	for _, content := range []string{providersHead + plainProvider, second} {
		_ = binary.Write(sum, binary.BigEndian, uint64(len(content)))
		sum.Write([]byte(content))
	}
	if want := fmt.Sprintf("sha256:%x", sum.Sum(nil)); got.Hash != want {
		t.Errorf("hash %s, want %s", got.Hash, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "f.yaml"), []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCredentialProviders(dir); err == nil || !strings.Contains(err.Error(), `f.yaml: provider "q" is defined twice`) {
		t.Errorf("error %v", err)
	}
	if _, err := LoadCredentialProviders(t.TempDir()); err == nil || !strings.Contains(err.Error(), "want a file *.json, *.yaml or *.yml") {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := LoadCredentialProviders(filepath.Join(dir, "none")); err == nil || !os.IsNotExist(err) {
		t.Errorf("nothing: %v", err)
	}
}
