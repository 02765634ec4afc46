package controlplane

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
)

// Kubeconfig writes a kubeconfig for a user with a client certificate, and returns its path.
// Calls with the same name write the same file.
func (c *ControlPlane) Kubeconfig(name, user string, groups ...string) (string, error) {
	return c.KubeconfigAt(c.URL, name, user, groups...)
}

// KubeconfigAt writes a kubeconfig like Kubeconfig, but for a client that reaches the API server
// at another URL.
func (c *ControlPlane) KubeconfigAt(url, name, user string, groups ...string) (string, error) {
	path := filepath.Join(c.dir, name+".kubeconfig")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := c.pki.issue(name, user, groups); err != nil {
		return "", err
	}
	var data [3]string
	for i, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		b, err := os.ReadFile(c.pki.path(file))
		if err != nil {
			return "", err
		}
		data[i] = base64.StdEncoding.EncodeToString(b)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: e2e
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: %[3]q
  user: {client-certificate-data: %[4]s, client-key-data: %[5]s}
contexts:
- name: e2e
  context: {cluster: e2e, user: %[3]q}
current-context: e2e
`, url, data[0], user, data[1], data[2])
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// CAFile returns the path of the certificate authority's certificate, which signs all others.
func (c *ControlPlane) CAFile() string { return c.pki.path("ca.crt") }
