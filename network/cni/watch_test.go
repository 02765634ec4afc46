package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/testrun"
)

// running starts Run and returns a function that waits for a status: nil for
// ready, or the begin of its text.
func running(t *testing.T, r *rig) (until func(what string, ok func(error) bool)) {
	t.Helper()
	changed := make(chan struct{}, 1)
	testrun.Start(t, func(ctx context.Context) error {
		return r.p.Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	return func(what string, ok func(error) bool) {
		t.Helper()
		late := time.After(2 * time.Minute)
		for !ok(r.p.Status()) {
			select {
			case <-changed:
			case <-late:
				t.Fatalf("%s: status is %v", what, r.p.Status())
			}
		}
	}
}

func ready(err error) bool    { return err == nil }
func notReady(err error) bool { return err != nil }

// Directories that do not exist yet, are removed and come back, each of them.
func TestDirectoriesComeAndGo(t *testing.T) {
	top := t.TempDir()
	deep := filepath.Join(top, "etc", "cni", "net.d")
	bin := filepath.Join(top, "opt", "cni", "bin")
	r := newRig(t, false, func(c *Config) { c.ConfDir, c.BinDirs = deep, []string{bin} })
	r.conf, r.bin = deep, bin
	until := running(t, r)
	until("nothing is there", notReady)
	make := func() {
		t.Helper()
		if err := errors.Join(os.MkdirAll(deep, 0o700), os.MkdirAll(bin, 0o700)); err != nil {
			t.Fatal(err)
		}
		r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		r.install("main")
	}
	make()
	until("all was made", ready)
	for _, gone := range []string{deep, filepath.Dir(deep), filepath.Join(top, "etc"), bin, filepath.Join(top, "opt")} {
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		until(gone+" was removed", notReady)
		if err := os.RemoveAll(bin); err != nil {
			t.Fatal(err)
		}
		make()
		until(gone+" was made again", ready)
	}
	if err := os.Rename(deep, deep+".old"); err != nil {
		t.Fatal(err)
	}
	until("it was renamed", notReady)
	if err := os.Symlink(deep+".old", deep); err != nil {
		t.Fatal(err)
	}
	until("a link leads to it", ready)
	if err := os.Remove(filepath.Join(deep+".old", "10.conflist")); err != nil {
		t.Fatal(err)
	}
	until("the file went behind the link", notReady)
}

// A file of a plugin in a directory of the network's name, which comes later.
func TestAPluginsOwnDirectoryIsWatched(t *testing.T) {
	r := newRig(t, false)
	r.install("main", "own")
	r.write("10.conflist", `{"cniVersion":"1.0.0","name":"net"}`)
	until := running(t, r)
	until("no plugins", notReady)
	sub := filepath.Join(r.conf, "net")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * quiet) // a load with the directory in it
	if err := os.WriteFile(filepath.Join(sub, "10.conf"), []byte(`{"type":"own"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	until("a plugin came", ready)
}

// The file in use is rewritten in place, slowly; it is never not ready.
func TestReadinessDoesNotFlip(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	until := running(t, r)
	until("start", ready)
	flips := 0
	stop := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if r.p.Status() != nil {
				flips++
			}
			time.Sleep(time.Millisecond)
		}
	}()
	next := oneConf("net", "0.4.0", `{"type":"main"}`)
	r.write("10.conflist", "")
	time.Sleep(3 * quiet)
	r.write("10.conflist", next[:20])
	time.Sleep(3 * quiet)
	begun := time.Now()
	r.write("10.conflist", next)
	for i := 0; ; i++ {
		r.p.mu.Lock()
		version := r.p.list.version
		r.p.mu.Unlock()
		if version == "0.4.0" {
			break
		}
		if i > 24_000 {
			t.Fatal("it is not read")
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("in force after %v", time.Since(begun))
	close(stop)
	<-watching
	if flips > 0 {
		t.Errorf("not ready %d times", flips)
	}
}
