package podruntime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadVolumeFile(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "volume")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, content string) { must(os.WriteFile(filepath.Join(top, name), []byte(content), 0o600)) }
	link := func(to, name string) { must(os.Symlink(to, filepath.Join(dir, name))) }
	must(os.MkdirAll(filepath.Join(dir, "sub"), 0o750))
	write("secret", "of the node")
	write("volume/a", "content")
	write("volume/sub/b", "below")
	write("volume/full", strings.Repeat("x", maxVolumeFile))
	write("volume/large", strings.Repeat("x", maxVolumeFile+1))
	link("../secret", "out")
	link(filepath.Join(top, "secret"), "absolute")
	link("..", "up")
	link("sub/b", "within")
	link("loop", "loop")
	must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))

	for _, tc := range []struct{ path, want string }{
		{"a", "content"},
		{"./sub/b", "below"},
		{"within", "below"},
		{"full", strings.Repeat("x", maxVolumeFile)},
	} {
		if got, err := readVolumeFile(dir, tc.path); err != nil || string(got) != tc.want {
			t.Errorf("%s: %.20q (%v), want %.20q", tc.path, got, err, tc.want)
		}
	}
	for _, path := range []string{"../secret", "/etc/passwd", "out", "absolute", "up/secret", "loop", "sub", ".", "", "a/b", "pipe", "large"} {
		if got, err := readVolumeFile(dir, path); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %.20q (%v), want an error, and not that it is missing", path, got, err)
		}
	}
	for _, path := range []string{"none", "sub/none", "none/none"} {
		if _, err := readVolumeFile(dir, path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that it is not there", path, err)
		}
	}
	if _, err := readVolumeFile(filepath.Join(top, "gone"), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no volume: %v", err)
	}
}
