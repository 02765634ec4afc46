package loopdev

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func image(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func attach(t *testing.T, file string) string {
	t.Helper()
	device, err := Attach(file, false)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) {
		t.Skip("no loop devices: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Free(device) })
	return device
}

func TestDeviceIsKnownByItsFile(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, other := image(t, dir, "a"), image(t, dir, "b")
	device := attach(t, file)
	moved := filepath.Join(dir, "moved")
	if err := os.Link(file, moved); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		find func(string) ([]string, error)
		file string
		want []string
	}{
		{"Of", Of, file, []string{device}},
		{"Of by another name", Of, moved, []string{device}},
		{"Of another file", Of, other, nil},
		{"Of none", Of, filepath.Join(dir, "none"), nil},
		{"Named", Named, file, []string{device}},
		{"Named otherwise", Named, moved, nil},
	} {
		if got, err := tc.find(tc.file); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q (%v), want %q", tc.name, got, err, tc.want)
		}
	}
	for range 2 {
		if err := Free(device); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Of(file); err != nil || len(got) > 0 {
		t.Errorf("%q (%v) after it was freed", got, err)
	}
}

func TestDeviceGrowsWithItsFile(t *testing.T) {
	file := image(t, t.TempDir(), "a")
	device := attach(t, file)
	if err := os.Truncate(file, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := Grow(device); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, unix.SEEK_END); err != nil || size != 2<<20 {
		t.Errorf("%d bytes (%v)", size, err)
	}
}

// Loop devices that others put on their files and take away meanwhile are no errors.
func TestOthersComeAndGo(t *testing.T) {
	dir := t.TempDir()
	file, other := image(t, dir, "a"), image(t, dir, "b")
	device := attach(t, file)
	stop, ended := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			d, err := Attach(other, false)
			if err == nil {
				err = Free(d)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 500 {
		if got, err := Of(file); err != nil || !slices.Equal(got, []string{device}) {
			t.Fatalf("%q (%v)", got, err)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A device that was freed while somebody has it open is not for others to use: it goes
// with its last user.
func TestAFreedDeviceIsNotListed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := image(t, dir, "a")
	device := attach(t, file)
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	if err := Free(device); err != nil {
		t.Fatal(err)
	}
	for name, find := range map[string]func(string) ([]string, error){"Of": Of, "Named": Named} {
		if got, err := find(file); err != nil || len(got) > 0 {
			t.Errorf("%s: %q (%v)", name, got, err)
		}
	}
	if another := attach(t, file); another == device {
		t.Errorf("%s is taken that is about to go", device)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A pipe at the path of the file keeps nobody waiting.
func TestPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if device, err := Attach(pipe, true); err == nil {
		_ = Free(device)
		t.Error("a loop device on a pipe")
	}
}
