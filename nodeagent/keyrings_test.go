package nodeagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/kubeletconfig"
)

func TestKeyrings(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", filepath.Join(dir, "home"))
	write := func(name, content string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	auths := func(user string) string { return `{"auths": {"r.example": {"username": "` + user + `"}}}` }
	write("root/config.json", auths("root-dir"), 0o600)
	write("home/.docker/config.json", auths("home"), 0o600)
	write("bin/p", `#!/bin/sh
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Global","auth":{"r.example":{"username":"'$WHO'"}}}'`, 0o700)
	const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
	const provider = "- {name: p, matchImages: [r.example], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1, env: [{name: WHO, value: plugin}]}\n"
	for _, tc := range []struct {
		name, config string
		want         string // users
		wrong        []string
	}{
		{"files alone", "", "root-dir home", nil},
		{"a plugin", head + provider, "root-dir home plugin", nil},
		{"no plugin", head, "", []string{"providers is empty"}},
		{"another kind", "apiVersion: v1\nkind: Pod\nproviders:\n" + provider, "", []string{`Pod of "v1": want CredentialProviderConfig of kubelet.config.k8s.io/v1`}},
		{"a misspelt field", head + "- {nam: p}", "", []string{`unknown field "nam"`}},
		{
			"several mistakes", head + "- {name: p, matchImages: [r.example], apiVersion: v2, tokenAttributes: {serviceAccountTokenAudience: x, requireServiceAccount: true, cacheType: Token}}", "",
			[]string{`providers[0].apiVersion: "v2"`, "providers[0].defaultCacheDuration is required", "providers[0].tokenAttributes"},
		},
		{"no such program", head + strings.Replace(provider, "name: p", "name: q", 1), "", []string{`Plugins[0].Name "q": stat`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &kubeletconfig.Config{RootDir: filepath.Join(dir, "root")}
			if tc.config != "" {
				c.CredentialProviderConfig, c.CredentialProviderDir = write("providers.yaml", tc.config, 0o600), filepath.Join(dir, "bin")
			}
			rings, err := (&Builder{Config: c}).keyrings()
			for _, w := range tc.wrong {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v, want %q in it", err, w)
				}
			}
			if len(tc.wrong) > 0 {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var users []string
			for _, r := range rings {
				auths, err := r.Credentials(t.Context(), "r.example/app:1")
				if err != nil {
					t.Error(err)
				}
				for _, a := range auths {
					users = append(users, a.Username)
				}
			}
			if got := strings.Join(users, " "); got != tc.want {
				t.Errorf("users %q, want %q", got, tc.want)
			}
		})
	}
}
