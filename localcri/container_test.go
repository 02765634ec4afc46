//go:build linux

package localcri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNameFor(t *testing.T) {
	names := []string{"docker.io/library/a@sha256:1", "registry.test:5000/a/b@sha256:2", "registry.test:5000/a/b@sha256:3", "registry.test:5000/a@sha256:4"}
	for _, tt := range []struct{ asked, user, want string }{
		{"a", "", names[0]},
		{"registry.test:5000/a/b:tag", "", names[2]},
		{"sha256:77", "registry.test:5000/a/b", names[2]},
		{"sha256:77", "", names[3]},
		{"not a name", "", names[3]},
	} {
		if got := nameFor(names, &runtimeapi.ImageSpec{Image: tt.asked, UserSpecifiedImage: tt.user}); got != tt.want {
			t.Errorf("asked for %q, %q: %q, want %q", tt.asked, tt.user, got, tt.want)
		}
	}
	if got := nameFor(nil, &runtimeapi.ImageSpec{Image: "a"}); got != "" {
		t.Errorf("of no names: %q", got)
	}
	digest := "a@sha256:0000000000000000000000000000000000000000000000000000000000000001"
	if got := nameFor([]string{"docker.io/library/" + digest, "docker.io/library/a@sha256:2"}, &runtimeapi.ImageSpec{Image: digest}); got != "docker.io/library/"+digest {
		t.Errorf("of the digest that was asked for: %q", got)
	}
}

// A directory of the runtime has its mode whatever the umask is, and one that a pod's root
// could not pass is named.
func TestDirectoriesOfTheRuntime(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(closed, "rt")
	if err := makeDir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("%v, %v; want the mode 711", info, err)
	}
	if err := othersPass(dir); err == nil || !strings.Contains(err.Error(), closed+" has mode 0700") {
		t.Errorf("%v, want an error that names %s", err, closed)
	}
	for d := closed; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := othersPass(dir); err != nil {
		t.Error(err)
	}
}
