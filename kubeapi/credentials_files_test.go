package kubeapi_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/kubeapi"
)

// Whatever is in the place of a certificate, key or kubeconfig, reading it ends at
// once.
func TestHostileCredentialFiles(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want error
	}{
		"a pipe":          {func(p string) error { return syscall.Mkfifo(p, 0o600) }, safefile.ErrNotRegular},
		"a link to one":   {func(p string) error { return errors.Join(syscall.Mkfifo(p+"-pipe", 0o600), os.Symlink(p+"-pipe", p)) }, safefile.ErrNotRegular},
		"a directory":     {func(p string) error { return os.Mkdir(p, 0o700) }, safefile.ErrNotRegular},
		"a terabyte":      {func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<40)) }, safefile.ErrTooLarge},
		"a link to zeros": {func(p string) error { return os.Symlink("/dev/zero", p) }, safefile.ErrNotRegular},
	} {
		t.Run(name, func(t *testing.T) {
			ends := func(what string, f func(path string) error) {
				t.Helper()
				path := filepath.Join(t.TempDir(), "file")
				if err := c.make(path); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- f(path) }()
				select {
				case err := <-done:
					if !errors.Is(err, c.want) {
						t.Errorf("%s: %v, want %v", what, err, c.want)
					}
				case <-time.After(2 * time.Minute):
					t.Fatalf("%s waits", what)
				}
			}
			ends("the pair in use", func(path string) error {
				s := newStore(t)
				if err := os.Symlink(path, s.CurrentPath()); err != nil {
					return err
				}
				_, err := s.Current()
				return err
			})
			ends("a certificate that is to be replaced", func(path string) error {
				_, _, err := kubeapi.RotatingConfig(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: path, KeyFile: path}})
				return err
			})
			ends("a kubeconfig", func(path string) error {
				_, _, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{Kubeconfig: path}, time.Now())
				return err
			})
			for field, more := range map[string]string{"client-certificate": ", client-key: none", "client-key": ", client-certificate: none", "tokenFile": ""} {
				ends(field, func(path string) error {
					kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
					put(t, kubeconfig, []byte(fmt.Sprintf(kubeconfigText, "node", field+": "+path+more)))
					_, _, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{Kubeconfig: kubeconfig}, time.Now())
					return err
				})
			}
			ends("the roots", func(path string) error {
				kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
				text := strings.Replace(fmt.Sprintf(kubeconfigText, "node", "token: t"), "cluster: {", "cluster: {certificate-authority: "+path+", ", 1)
				put(t, kubeconfig, []byte(text))
				_, _, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{Kubeconfig: kubeconfig}, time.Now())
				return err
			})
		})
	}
}

// Paths in a kubeconfig are relative to its directory.
func TestRelativePathsOfAKubeconfig(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "token"), []byte("secret"))
	put(t, filepath.Join(dir, "kubeconfig"), []byte(fmt.Sprintf(kubeconfigText, "node", "tokenFile: token")))
	user, _, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{Kubeconfig: filepath.Join(dir, "kubeconfig")}, time.Now())
	if err != nil || user.BearerTokenFile != filepath.Join(dir, "token") || user.BearerToken != "secret" {
		t.Errorf("%v, %v", user, err)
	}
}

// A kubeconfig that comes to gigabytes is refused, and so is none.
func TestKubeconfigOfAliases(t *testing.T) {
	dir := t.TempDir()
	text := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		text += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 10), ","))
	}
	put(t, filepath.Join(dir, "kubeconfig"), []byte(text))
	if _, _, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{Kubeconfig: filepath.Join(dir, "kubeconfig")}, time.Now()); err == nil {
		t.Error("no error")
	}
	if _, _, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{Kubeconfig: filepath.Join(dir, "none")}, time.Now()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
