package plugins

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

func TestCheckPath(t *testing.T) {
	for path, ok := range map[string]bool{
		"/": true, "/a/b": true, "/a/..b": true, "/" + strings.Repeat("a/", 2047): true,
		"": false, "a": false, "./a": false, "/..": false, "/a/../b": false, "/a/..": false, "..": false,
		"/a\x00b": false, "/a\xff": false, "/" + strings.Repeat("a", 4095): false,
	} {
		err := checkPath(path)
		if (err == nil) != ok {
			t.Errorf("%.40q: %v", path, err)
		}
		if err != nil && (len(err.Error()) > 200 || !strings.HasPrefix(err.Error(), "hostPath.path")) {
			t.Errorf("message %q", err)
		}
	}
}

func TestCheck(t *testing.T) {
	all := []v1.HostPathType{"", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"}
	for _, tc := range []struct {
		path string
		good string // the types that it fits
	}{
		{"dir", " DirectoryOrCreate Directory"},
		{"file", " FileOrCreate File"},
		{"socket", " Socket"},
		{"/dev/null", " CharDevice"},
		{"link", " DirectoryOrCreate Directory"},
		{"none", " DirectoryOrCreate FileOrCreate"},
		{"no/parent", " DirectoryOrCreate"},
		{"file/below", ""},
	} {
		for _, kind := range all {
			top := t.TempDir()
			must(t, os.Mkdir(filepath.Join(top, "dir"), 0o755))
			must(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o600))
			must(t, os.Symlink("dir", filepath.Join(top, "link")))
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(top, "socket"), Net: "unix"})
			must(t, err)
			path := tc.path
			if !filepath.IsAbs(path) {
				path = filepath.Join(top, path)
			}
			_, before := os.Stat(path)
			foretold := newHostPath().Check(t.Context(), &volumemgr.Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}})
			if _, after := os.Stat(path); (before == nil) != (after == nil) {
				t.Errorf("%s as %q: Check made it", tc.path, kind)
			}
			err = checkHostPath(path, kind)
			// Only the attempt shows that a parent is missing.
			if (foretold == nil) != (err == nil) && !(tc.path == "no/parent" && kind == v1.HostPathFileOrCreate) {
				t.Errorf("%s as %q: Check returns %v, and SetUp %v", tc.path, kind, foretold, err)
			}
			want := kind == "" || strings.Contains(tc.good+" ", " "+string(kind)+" ")
			if (err == nil) != want {
				t.Errorf("%s as %q: %v, want ok %t", tc.path, kind, err, want)
			}
			if err != nil && (!strings.HasPrefix(err.Error(), "hostPath type check failed: "+path+" ")) {
				t.Errorf("message %q", err)
			}
			info, serr := os.Stat(path)
			if tc.path == "none" && kind == v1.HostPathFileOrCreate && (serr != nil || info.Mode() != 0o644) {
				t.Errorf("made %v (%v)", info, serr)
			}
			if tc.path == "no/parent" && kind == v1.HostPathDirectoryOrCreate && (serr != nil || !info.IsDir() || info.Mode().Perm() != 0o755) {
				t.Errorf("made %v (%v)", info, serr)
			}
			if tc.path == "no/parent" && kind == v1.HostPathFileOrCreate {
				if _, err := os.Stat(filepath.Join(top, "no")); err == nil {
					t.Error("the parent was made")
				}
			}
			_ = l.Close()
		}
	}
	if err := checkHostPath("/", "Tape"); err == nil || !strings.Contains(err.Error(), "BlockDevice") {
		t.Errorf("error %v", err)
	}
}

func TestPlugin(t *testing.T) {
	p := newHostPath()
	kind := v1.HostPathDirectory
	h := &v1.HostPathVolumeSource{Path: t.TempDir(), Type: &kind}
	inline := &volumemgr.Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{HostPath: h}}}
	pv := &volumemgr.Spec{PersistentVolume: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: h}}}, ReadOnly: true}
	for spec, readOnly := range map[*volumemgr.Spec]bool{inline: false, pv: true} {
		if !p.Supports(spec) {
			t.Error("not supported")
		}
		r, err := p.SetUp(t.Context(), &volumemgr.Volume{Spec: spec})
		if err != nil || r != (volumemgr.Result{Path: h.Path, ReadOnly: readOnly}) {
			t.Errorf("%+v (%v)", r, err)
		}
	}
	if p.Supports(&volumemgr.Spec{Volume: &v1.Volume{}}) {
		t.Error("supports anything")
	}
	must(t, os.WriteFile(filepath.Join(h.Path, "precious"), nil, 0o600))
	must(t, p.TearDown(t.Context(), &volumemgr.Volume{Path: h.Path, Spec: inline}))
	if _, err := os.Stat(filepath.Join(h.Path, "precious")); err != nil {
		t.Error(err)
	}
	bad := *h
	bad.Path = "../etc"
	if _, err := p.SetUp(t.Context(), &volumemgr.Volume{Spec: &volumemgr.Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{HostPath: &bad}}}}); err == nil {
		t.Error("a path with ..")
	}
}

// A server that is dead holds one goroutine, however many pods try how often.
func TestDeadServerHoldsOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newHostPath()
		alive := make(chan struct{})
		var calls atomic.Int32
		p.check = func(path string, kind v1.HostPathType) error {
			if path == "/dead" {
				calls.Add(1)
				<-alive
			}
			return nil
		}
		setUp := func(path string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			kind := v1.HostPathDirectory
			h := &v1.HostPathVolumeSource{Path: path, Type: &kind}
			_, err := p.SetUp(ctx, &volumemgr.Volume{Spec: &volumemgr.Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{HostPath: h}}}})
			return err
		}
		for range 1000 {
			if err := setUp("/dead"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
		}
		if n := p.checks.InFlight(); n != 1 || calls.Load() != 1 {
			t.Errorf("%d goroutines after %d calls", n, calls.Load())
		}
		must(t, setUp("/alive"))
		close(alive)
		synctest.Wait()
		must(t, setUp("/dead"))
	})
}

func FuzzCheckPath(f *testing.F) {
	for _, p := range []string{"/", "/a/b", "", "a", "/../x", "/a\x00", "/\xff", "//a//"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		err := checkPath(p)
		if err != nil {
			if len(err.Error()) > 500 {
				t.Fatalf("a message of %d bytes", len(err.Error()))
			}
			return
		}
		if !filepath.IsAbs(p) || len(p) > 4095 || strings.ContainsRune(p, 0) || strings.Contains(p+"/", "/../") {
			t.Fatalf("%q is allowed", p)
		}
	})
}
