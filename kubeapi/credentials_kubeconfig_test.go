package kubeapi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/kubeapi"
)

const kubeconfigText = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s:6443"}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func TestLoad(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair(t, kubeapi.ClientCertificateTemplate("edge-1"))
	a.skew = -1000 * time.Hour
	oldCert, oldKey := a.pair(t, kubeapi.ClientCertificateTemplate("edge-1"))
	for _, tc := range []struct {
		name              string
		kubeconfig        func(dir string) string // "": not there
		bootstrap         string                  // of its user; "": not there
		wantHost, wantErr string
		wantBootstrap     bool
	}{
		{name: "no bootstrap", kubeconfig: func(string) string { return fmt.Sprintf(kubeconfigText, "node", "token: t") }, wantHost: "node"},
		{name: "no bootstrap, nothing there", wantErr: "kubeconfig"},
		{name: "nothing there", bootstrap: "token: t", wantHost: "boot", wantBootstrap: true},
		{name: "valid token", kubeconfig: func(string) string { return fmt.Sprintf(kubeconfigText, "node", "token: t") }, bootstrap: "token: t", wantHost: "node"},
		{name: "valid", kubeconfig: func(dir string) string {
			put(t, filepath.Join(dir, "pair"), cert, key)
			return fmt.Sprintf(kubeconfigText, "node", "client-certificate: "+dir+"/pair, client-key: "+dir+"/pair")
		}, bootstrap: "token: t", wantHost: "node"},
		{name: "one has expired", kubeconfig: func(dir string) string {
			put(t, filepath.Join(dir, "pair"), cert, oldCert, key)
			return fmt.Sprintf(kubeconfigText, "node", "client-certificate: "+dir+"/pair, client-key: "+dir+"/pair")
		}, bootstrap: "token: t", wantHost: "boot", wantBootstrap: true},
		{name: "expired", kubeconfig: func(dir string) string {
			put(t, filepath.Join(dir, "pair"), oldCert, oldKey)
			return fmt.Sprintf(kubeconfigText, "node", "client-certificate: "+dir+"/pair, client-key: "+dir+"/pair")
		}, bootstrap: "token: t", wantHost: "boot", wantBootstrap: true},
		{name: "its files are gone", kubeconfig: func(dir string) string {
			return fmt.Sprintf(kubeconfigText, "node", "client-certificate: "+dir+"/pair, client-key: "+dir+"/pair")
		}, bootstrap: "token: t", wantHost: "boot", wantBootstrap: true},
		{name: "garbage", kubeconfig: func(string) string { return "{" }, bootstrap: "token: t", wantHost: "boot", wantBootstrap: true},
		{name: "both garbage", kubeconfig: func(string) string { return "{" }, bootstrap: "client-certificate-data: '%'", wantErr: "kubeconfig"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			f := kubeapi.CredentialFiles{Kubeconfig: filepath.Join(dir, "kubeconfig"), Current: filepath.Join(dir, "pki", "kubelet-client-current.pem")}
			if tc.kubeconfig != nil {
				put(t, f.Kubeconfig, []byte(tc.kubeconfig(dir)))
			}
			if tc.bootstrap != "" {
				f.Bootstrap = filepath.Join(dir, "bootstrap")
				put(t, f.Bootstrap, []byte(fmt.Sprintf(kubeconfigText, "boot", tc.bootstrap)))
			}
			user, bootstrap, err := kubeapi.LoadCredentials(f, time.Now())
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if user.Host != "https://"+tc.wantHost+":6443" || (bootstrap != nil) != tc.wantBootstrap {
				t.Errorf("user %v, bootstrap %v", user, bootstrap)
			}
			if !tc.wantBootstrap {
				return
			}
			if bootstrap.BearerToken != "t" || user.BearerToken != "" || user.CertFile != f.Current || user.KeyFile != f.Current {
				t.Errorf("user %v, bootstrap %v", user, bootstrap)
			}
			text, err := os.ReadFile(f.Kubeconfig)
			if err != nil || !strings.Contains(string(text), f.Current) || strings.Contains(string(text), "token") {
				t.Errorf("wrote %s, %v", text, err)
			}
			if err := os.MkdirAll(filepath.Dir(f.Current), 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, f.Current, cert, key) // what the manager does
			if user, bootstrap, err := kubeapi.LoadCredentials(f, time.Now()); err != nil || bootstrap != nil || user.Host != "https://boot:6443" {
				t.Errorf("the next start: %v, %v, %v", user, bootstrap, err)
			}
		})
	}
}
