package facts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/ocispec"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func thisMachine(t *testing.T) *Facts {
	t.Helper()
	f, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSources(t *testing.T) {
	plugintest.RequireMounts(t)
	f, dir := thisMachine(t), t.TempDir()
	defer unix.Umask(unix.Umask(0o077))
	for name, flags := range map[string]uintptr{"shared": unix.MS_SHARED, "private": unix.MS_PRIVATE, "slave": unix.MS_SLAVE} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("x", at, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		for _, f := range []uintptr{unix.MS_SHARED, flags} {
			if f == unix.MS_SLAVE { // of somebody: a copy of one that is shared
				if err := unix.Mount(at, at, "", unix.MS_BIND, ""); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
			}
			if err := unix.Mount("", at, "", f, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(at, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(at, "below"), filepath.Join(dir, "to-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("loop", filepath.Join(dir, "loop")), os.Symlink("nothing", filepath.Join(dir, "dangling"))); err != nil {
		t.Fatal(err)
	}
	const spread, not = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	for _, tt := range []struct {
		host, path string
		p          runtimeapi.MountPropagation
		want       string
	}{
		{"to-shared", "shared/below", spread, "shared"},
		{"to-private", "private/below", spread, "private"},
		{"to-slave", "slave/below", spread, "slave"},
		{"shared", "shared", spread, "shared"},
		{"to-shared", "shared/below", not, ""},
		{"none", "none", not, ""},
		{"to-shared/none/none", "shared/below/none/none", spread, "shared"},
	} {
		got, err := f.Sources(t.Context(), []*runtimeapi.Mount{{HostPath: filepath.Join(dir, tt.host), Propagation: tt.p}})
		want := ocispec.Source{Propagation: tt.want}
		if tt.path != "" {
			want.Path = filepath.Join(dir, tt.path)
		}
		if err != nil || got[0] != want {
			t.Errorf("Sources(%s, %v) = %+v, %v; want %+v", tt.host, tt.p, got, err, want)
		}
	}
	if got, err := f.Sources(t.Context(), []*runtimeapi.Mount{{HostPath: filepath.Join(dir, "loop")}}); err == nil || !strings.Contains(err.Error(), "mounts[0].host_path") {
		t.Errorf("a loop of links: %+v, %v", got, err)
	}
	for _, made := range []string{"none", "shared/below/none", "shared/below/none/none"} {
		if info, err := os.Stat(filepath.Join(dir, made)); err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v; want a directory of 755", made, info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, inTheWay := range []string{"dangling", "dangling/x", "file/x", "loop/x"} {
		if got, err := f.Sources(t.Context(), []*runtimeapi.Mount{{HostPath: filepath.Join(dir, inTheWay)}}); err == nil {
			t.Errorf("%s: %+v, want an error", inTheWay, got)
		}
	}
	got, err := f.Sources(t.Context(), []*runtimeapi.Mount{
		{Image: &runtimeapi.ImageSpec{Image: "x"}, HostPath: dir}, {HostPath: "relative"}, {HostPath: dir + "\x00"}, {},
	})
	if err != nil || len(got) != 4 || got[0] != (ocispec.Source{}) || got[1] != got[0] || got[2] != got[0] || got[3] != got[0] {
		t.Errorf("Sources of what are no host paths = %+v, %v", got, err)
	}
}

func TestPropagationOf(t *testing.T) {
	const table = `10 1 0:1 / / rw shared:1 - ext4 /dev/x rw
11 10 0:2 / /a rw master:1 - tmpfs x rw
12 10 0:2 / /b rw shared:3 master:1 propagate_from:2 - tmpfs x rw
13 10 0:2 / /c rw - tmpfs x rw
14 10 0:2 / /d rw unbindable - tmpfs x rw
110 10 0:2 / /e rw shared:9 - tmpfs x rw
15 bad
`
	for id, want := range map[int]string{10: "shared", 11: "slave", 12: "shared", 13: "private", 14: "private", 1: "private", 110: "shared"} {
		if got, err := propagationOf([]byte(table), id); err != nil || got != want {
			t.Errorf("propagationOf(%d) = %s, %v; want %s", id, got, err, want)
		}
	}
	if got, err := propagationOf([]byte(table), 15); err == nil {
		t.Errorf("propagationOf a bad line = %s", got)
	}
	if id, err := mountID([]byte("pos:\t0\nflags:\t012\nmnt_id:\t42\n")); id != 42 || err != nil {
		t.Errorf("mountID = %d, %v", id, err)
	}
	if id, err := mountID([]byte("pos:\t0\n")); err == nil {
		t.Errorf("mountID = %d", id)
	}
}

func FuzzMountTable(f *testing.F) {
	f.Add([]byte("10 1 0:1 / / rw shared:1 - ext4 /dev/x rw\n"), 10)
	f.Fuzz(func(_ *testing.T, b []byte, id int) {
		_, _ = propagationOf(b, id)
		_, _ = mountID(b)
	})
}

func TestDevices(t *testing.T) {
	plugintest.RequireMounts(t)
	f, dir := thisMachine(t), t.TempDir()
	if err := unix.Mount("x", dir, "tmpfs", 0, ""); err != nil { // with device nodes
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "d/e"), 0o755),
		unix.Mknod(filepath.Join(dir, "d/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mknod(filepath.Join(dir, "d/e/disk"), unix.S_IFBLK|0o660, int(unix.Mkdev(259, 1048575))),
		os.Lchown(filepath.Join(dir, "d/e/disk"), 7, 8),
		os.Chmod(filepath.Join(dir, "d/e/disk"), 0o660), // whatever the umask is
		os.Symlink("d/null", filepath.Join(dir, "link")),
		os.Symlink("..", filepath.Join(dir, "d/up")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
		syscall.Mkfifo(filepath.Join(dir, "d/pipe"), 0o600),
		os.Mkdir(filepath.Join(dir, "pts"), 0o755),
		unix.Mknod(filepath.Join(dir, "pts/0"), unix.S_IFCHR|0o666, int(unix.Mkdev(136, 0))),
		unix.Mknod(filepath.Join(dir, "console"), unix.S_IFCHR|0o666, int(unix.Mkdev(5, 1))),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	null := ocispec.Device{Path: "/dev/x", Type: "c", Major: 1, Minor: 3}
	for host, want := range map[string]string{
		"link": "[/dev/x c 1:3 0:0]", "d": "[/dev/x/e/disk b 259:1048575 7:8 /dev/x/null c 1:3 0:0]", "file": "[]", "none": "[]", "d/pipe": "[]", "file/x": "[]",
	} {
		got, err := f.Devices(t.Context(), []*runtimeapi.Device{{HostPath: filepath.Join(dir, host), ContainerPath: null.Path}})
		var shown []string
		for _, d := range got[0] {
			shown = append(shown, fmt.Sprintf("%s %s %d:%d %d:%d", d.Path, d.Type, d.Major, d.Minor, d.UID, d.GID))
		}
		if fmt.Sprint(shown) != want || err != nil {
			t.Errorf("Devices(%s) = %v, %v; want %s", host, shown, err, want)
		}
	}
	all, err := New(Config{Dev: dir})
	if err != nil {
		t.Fatal(err)
	}
	got, err := all.HostDevices(t.Context())
	if err != nil || len(got) != 2 || got[0].Path != "/dev/d/e/disk" || got[0].Mode != 0o660 || got[1].Path != "/dev/d/null" {
		t.Errorf("HostDevices = %+v, %v", got, err)
	}
	if got, err := f.HostDevices(t.Context()); err != nil || len(got) == 0 {
		t.Errorf("HostDevices of this machine = %+v, %v", got, err)
	}
}

// A host path whose file system does not answer holds up its caller until the
// context ends, and one thread.
func TestHangingHostPathHoldsOneThread(t *testing.T) {
	f := thisMachine(t)
	hang := make(chan struct{})
	defer close(hang)
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := errors.New("cancelled")
		go cancel()
		_, err := f.detach(ctx, "source /hang", func() (found, error) { <-hang; return found{}, cancelled })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("detach: %v", err)
		}
	}
	if n := f.hostile.InFlight(); n > 1 {
		t.Errorf("%d calls in flight; want one", n)
	}
}

func TestUsers(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(outside, "passwd"), []byte("theirs"), 0o600),
		os.MkdirAll(filepath.Join(root, "etc"), 0o755),
		os.MkdirAll(filepath.Join(root, "store"), 0o755),
		os.WriteFile(filepath.Join(root, "store/passwd"), []byte("ours"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) func(string) error { return func(path string) error { return os.Symlink(to, path) } }
	for name, tt := range map[string]struct {
		make func(path string) error
		want string
	}{
		"absolute link":  {link("/store/passwd"), "ours"},
		"link with dots": {link("../../../store/passwd"), "ours"},
		"link outside":   {link(filepath.Join(outside, "passwd")), ""},
		"loop":           {link("passwd"), ""},
		"directory":      {func(path string) error { return os.Mkdir(path, 0o755) }, ""},
		"pipe":           {func(path string) error { return syscall.Mkfifo(path, 0o600) }, ""},
		"nothing":        {func(string) error { return nil }, ""},
		"file":           {func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }, "x"},
		"endless": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		}, strings.Repeat("\x00", ocispec.MaxUsers)},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(root, "etc/passwd")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path)
			passwd, group, err := Users(root)
			if err != nil || string(passwd) != tt.want || group != nil {
				t.Errorf("Users = %.20q, %.20q, %v; want %.20q", passwd, group, err, tt.want)
			}
		})
	}
	if err := os.RemoveAll(filepath.Join(root, "etc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, "etc")); err != nil {
		t.Fatal(err)
	}
	if passwd, _, err := Users(root); err != nil || passwd != nil {
		t.Errorf("Users below a link that leads out = %q, %v", passwd, err)
	}
}
