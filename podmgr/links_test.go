package podmgr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

func newRemembering(t *testing.T, path string, m Memory) *directory {
	t.Helper()
	s, err := Directory(DirectoryConfig{Path: path, NodeName: "N1", Rescan: time.Hour, Memory: m})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*directory)
}

// A manifest may be a link, but only to a file that somebody wrote: what would
// keep its reader waiting is a problem, and its last good version stays.
func TestScanLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	file, fifo := filepath.Join(elsewhere, "pod"), filepath.Join(elsewhere, "fifo")
	replace(t, file, podYAML("a", ""))
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	targets := []string{fifo, "/dev/zero", "/dev/tty"}
	if runtime.GOOS == "linux" {
		targets = append(targets, "/proc/kmsg", "/proc/self/mounts", "/sys/kernel/mm/transparent_hugepage/enabled")
	}
	d := newDirectory(t, dir)
	link := filepath.Join(dir, "a.yaml")
	for _, target := range targets {
		if _, err := os.Stat(target); err != nil {
			continue // not on this machine
		}
		soon(t, func() {
			for _, to := range []string{file, target} {
				if err := errors.Join(os.RemoveAll(link+".new"), os.Symlink(to, link+".new"), os.Rename(link+".new", link)); err != nil {
					t.Fatal(err)
				}
				d.scan(t.Context())
			}
			s := d.snapshot()
			if len(s.Pods) != 1 || len(s.Problems) != 1 || !s.Problems[0].Kept || !strings.Contains(s.Problems[0].Reason, "not a regular file") {
				t.Errorf("%s: %d pods, problems %v", target, len(s.Pods), s.Problems)
			}
		})
	}
}

func TestScanManyFiles(t *testing.T) {
	dir := t.TempDir()
	d := newDirectory(t, dir)
	replace(t, filepath.Join(dir, "a.yaml"), podYAML("a", ""))
	d.scan(t.Context())
	for i := range maxFiles {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if changed, _ := d.scan(t.Context()); !changed {
		t.Error("that there are too many is no change")
	}
	if s := d.snapshot(); len(s.Pods) != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "too many") || s.Problems[0].File != dir {
		t.Errorf("%d pods, problems %v", len(s.Pods), s.Problems)
	}
	if err := os.Remove(filepath.Join(dir, "0")); err != nil {
		t.Fatal(err)
	}
	d.scan(t.Context())
	if s := d.snapshot(); len(s.Pods) != 1 || len(s.Problems) != 0 {
		t.Errorf("then %d pods, problems %v", len(s.Pods), s.Problems)
	}
}

// All files together are bounded, too.
func TestScanLargeFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	d := newDirectory(t, dir)
	replace(t, a, podYAML("a", ""))
	d.scan(t.Context())
	d.size = maxDirectory - 10 // as if there were others
	replace(t, b, podYAML("b", ""))
	d.scan(t.Context())
	if s := d.snapshot(); len(s.Pods) != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "all manifests take more than") {
		t.Errorf("%d pods, problems %v", len(s.Pods), s.Problems)
	}
	replace(t, a, podYAML("a", ", labels: {x: z}")+"# no larger in memory")
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	d.size = d.files[a].good.size
	d.scan(t.Context())
	if s := d.snapshot(); len(s.Pods) != 1 || s.Pods[0].Labels["x"] != "z" || len(s.Problems) != 0 {
		t.Errorf("pods %v, problems %v", s.Pods, s.Problems)
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	if d.scan(t.Context()); d.size != 0 {
		t.Errorf("%d bytes of no file", d.size)
	}
}

// A file that does not answer is a problem; its last good version stays, the
// other files go on, and it is not waited for again as long.
func TestFileThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		d := newDirectory(t, dir)
		hangs := filepath.Join(dir, "a.yaml")
		replace(t, hangs, podYAML("a", ""))
		d.scan(t.Context())
		release := make(chan struct{})
		defer close(release)
		go func() {
			_, _ = d.reads.Do(t.Context(), hangs, func() (reading, error) { <-release; return reading{}, nil })
		}()
		synctest.Wait()
		replace(t, filepath.Join(dir, "b.yaml"), podYAML("b", ""))
		for _, want := range []time.Duration{fileTimeout, knownTimeout} {
			began := time.Now()
			d.scan(t.Context())
			if took := time.Since(began); took != want {
				t.Errorf("a scan takes %v, want %v", took, want)
			}
			if s := d.snapshot(); len(s.Pods) != 2 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "does not answer") {
				t.Errorf("%d pods, problems %v", len(s.Pods), s.Problems)
			}
		}
		if _, err := os.Stat(hangs); err != nil {
			t.Fatal(err)
		}
	})
}

// A directory that cannot be listed says nothing of what should run.
func TestRunWithoutAList(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	err := newDirectory(t, loop).Run(t.Context(), func(Snapshot) { t.Error("it spoke") })
	if err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	spoke := 0
	if err := newDirectory(t, filepath.Join(filepath.Dir(loop), "none")).Run(ctx, func(Snapshot) {
		spoke++
		time.AfterFunc(100*time.Millisecond, cancel) // in which it could speak again
	}); err != nil || spoke != 1 {
		t.Errorf("of a directory that is not there: %d times, %v; want once", spoke, err)
	}
}

// What was removed while no agent ran is forgotten, with its secrets, by the
// first complete listing: a broken file of the same name has nothing then.
func TestForgetsWhatWentMeanwhile(t *testing.T) {
	dir, mem := t.TempDir(), &checkpointtest.Disk{}
	mem.Put("other", "x")
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	replace(t, a, podYAML("a", "")+"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: v}\n")
	replace(t, b, podYAML("b", ""))
	d := newRemembering(t, dir, mem)
	d.scan(t.Context())
	d.remember()
	if len(mem.Values()) != 3 {
		t.Fatalf("%d things are remembered", len(mem.Values()))
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	d = newRemembering(t, dir, mem)
	d.scan(t.Context())
	if len(mem.Values()) != 3 {
		t.Error("without the directory, there is nothing to tell that files are gone")
	}
	if err := errors.Join(os.Rename(dir+".away", dir), os.Remove(a)); err != nil {
		t.Fatal(err)
	}
	d.scan(t.Context())
	if mem.Value(memoryKey(a)) != "" || mem.Value(memoryKey(b)) == "" || mem.Value("other") == "" {
		t.Errorf("remembered are %v", mem.Values())
	}
	replace(t, a, "{ bad")
	replace(t, b, "{ bad")
	d.scan(t.Context())
	if s := d.snapshot(); len(s.Pods) != 1 || s.Pods[0].Name != "b-n1" || len(s.Secrets) != 0 {
		t.Errorf("pods %v, %d secrets; want b alone", s.Pods, len(s.Secrets))
	}
}

// Whatever is in the memory of a file, it is that file's content or nothing.
func FuzzRemembered(f *testing.F) {
	good, _ := json.Marshal(remembered{Path: "/m/a.yaml", Data: []byte(podYAML("a", ""))})
	for _, s := range []string{string(good), "", "null", "{}", "[]", `{"Path":"/m/b.yaml"}`, `{"Path":"/m/a.yaml","Data":"%%%"}`, `{"Path":"/m/a.yaml","Data":null}`, "{"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := &checkpointtest.Disk{}
		mem.Put(memoryKey("/m/a.yaml"), string(b))
		cfg := DirectoryConfig{NodeName: "n", Memory: mem, Log: zap.NewNop()}
		d := &directory{cfg: cfg, files: map[string]*manifest{}, notes: newNotes(cfg)}
		m := d.recall("/m/a.yaml")
		if m == nil {
			return
		}
		for _, p := range m.good.pods {
			if p.UID == "" || notInPath(string(p.UID)) != "" {
				t.Errorf("pod %v", p)
			}
		}
		again, err := json.Marshal(remembered{Path: "/m/a.yaml", Data: []byte("x")})
		if _, ok := parseRemembered(again, "/m/a.yaml"); err != nil || !ok {
			t.Errorf("%s is not read: %v", again, err)
		}
	})
}
