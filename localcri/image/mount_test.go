//go:build linux

package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needOverlay skips where overlays cannot be mounted, and returns a directory on a
// file system that can be below one.
func needOverlay(t testing.TB) string {
	t.Helper()
	needRoot(t)
	top := t.TempDir()
	for _, d := range []string{"l", "u", "w", "m"} {
		must(t, os.Mkdir(filepath.Join(top, d), 0o755))
	}
	opts := fmt.Sprintf("lowerdir=%s/l,upperdir=%s/u,workdir=%s/w", top, top, top)
	if err := unix.Mount("overlay", filepath.Join(top, "m"), "overlay", 0, opts); err != nil {
		t.Skipf("overlays cannot be mounted here: %v", err)
	}
	must(t, unix.Unmount(filepath.Join(top, "m"), 0))
	must(t, os.RemoveAll(filepath.Join(top, "w")))
	must(t, os.Mkdir(filepath.Join(top, "w"), 0o755))
	return top
}

func stack(t testing.TB, top string, n int, name string) (layers []string) {
	t.Helper()
	for i := range n {
		d := filepath.Join(top, fmt.Sprintf("%s-%d", name, i))
		must(t, os.MkdirAll(d, 0o755))
		must(t, os.WriteFile(filepath.Join(d, "top"), []byte(fmt.Sprint(i)), 0o644))
		must(t, os.WriteFile(filepath.Join(d, fmt.Sprint("f", i)), nil, 0o644))
		layers = append(layers, d)
	}
	return layers
}

// Layers are mounted in their order, by both ways that kernels have, however many
// and long they are, and whatever is in their names.
func TestMount(t *testing.T) {
	top := needOverlay(t)
	long := strings.Repeat("x", 64)
	for name, o := range map[string]Overlay{
		"two, read-only": {Layers: stack(t, top, 2, "a")},
		"one":            {Layers: stack(t, top, 1, "b"), Upper: top + "/u", Work: top + "/w"},
		"two, volatile":  {Layers: stack(t, top, 2, "c"), Upper: top + "/u2", Work: top + "/w2", Volatile: true},
		"130":            {Layers: stack(t, top, 130, long)},
		"500":            {Layers: stack(t, top, 500, "d")},
		"names":          {Layers: stack(t, top, 2, `a:b,c\d e`), Upper: top + `/u:3,4\5\\6`, Work: top + `/w:3,4\5\\6`},
		"long names":     {Layers: stack(t, filepath.Join(top, strings.Repeat("y", 250)), 3, strings.Repeat("z", 240))},
	} {
		for way, mount := range map[string]func(target string) error{
			"as the kernel likes": o.Mount, "by one option": o.mountOnce,
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				if strings.Contains(name, "500") && testing.Short() {
					t.Skip("left out with -short")
				}
				for _, d := range []string{o.Upper, o.Work} {
					if d != "" {
						must(t, os.RemoveAll(d))
						must(t, os.Mkdir(d, 0o755))
					}
				}
				target := t.TempDir()
				if err := mount(target); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
				entries, err := os.ReadDir(target)
				must(t, err)
				b, err := os.ReadFile(filepath.Join(target, "top"))
				if string(b) != "0" || err != nil || len(entries) != len(o.Layers)+1 {
					t.Errorf("%q, %v, %d entries; want the topmost and one of each of %d layers", b, err, len(entries), len(o.Layers))
				}
				err = os.WriteFile(filepath.Join(target, "new"), nil, 0o600)
				if o.Upper == "" && !errors.Is(err, unix.EROFS) || o.Upper != "" && err != nil {
					t.Errorf("write: %v", err)
				}
			})
		}
	}
}

// What an image's layers say about each other is what a container sees.
func TestMountedImage(t *testing.T) {
	top := needOverlay(t)
	srv := newServer()
	a := dir("a")
	a.Uid = 5
	srv.image(t, "app", "1", nil,
		archive(t, a, file("a/kept", "1"), file("a/gone", "1"), dir("o"), file("o/hidden", "1"), dir("r"), file("r/f", "1"), file("linked", "1")),
		archive(t, file("a/.wh.gone", ""), dir("o"), file("o/new", "2"), file("o/.wh..wh..opq", ""), file("r", "2"), hardlink("again", "linked"), file("a/new", "2")),
	)
	s, _ := start(t, testConfig(t, memory{host: srv}))
	pull(t, s, host+"/app:1")
	root, err := s.Use(t.Context(), host+"/app:1", "c1")
	must(t, err)
	private := filepath.Join(top, "m")
	must(t, PrivateDir(private))
	must(t, PrivateDir(private))
	t.Cleanup(func() { _ = unix.Unmount(private, unix.MNT_DETACH) })
	target := filepath.Join(private, "rootfs")
	must(t, os.Mkdir(target, 0o755))
	must(t, Overlay{Layers: root.Layers, Upper: top + "/u", Work: top + "/w", Volatile: true}.Mount(target))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	want := map[string]string{"a": "dir", "a/kept": "1", "a/new": "2", "o": "dir", "o/new": "2", "r": "2", "linked": "1", "again": "1"}
	if got := look(t, target); !equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(target, "a"), &st))
	if st.Uid != 5 {
		t.Errorf("a is of %d, want 5 of the lower layer", st.Uid)
	}
	must(t, unix.Stat(filepath.Join(target, "linked"), &st))
	if st.Nlink != 2 {
		t.Errorf("linked has %d names, want 2", st.Nlink)
	}
}

func TestBadOverlaysAreRefused(t *testing.T) {
	for want, o := range map[string]Overlay{
		"Layers has 0":   {},
		"Layers has 501": {Layers: make([]string, 501)},
		"at least 2":     {Layers: []string{"/a"}},
		"Work":           {Layers: []string{"/a"}, Upper: "/b"},
		`"b"`:            {Layers: []string{"/a", "b"}},
	} {
		if err := o.Mount("/none"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
