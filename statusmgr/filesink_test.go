package statusmgr

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/durable"
)

var _ interface {
	Sink
	Loader
} = (*FileSink)(nil)

func newSink(t *testing.T, cfg FileSinkConfig) *FileSink {
	t.Helper()
	s, err := NewFileSink(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "x"}}}
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestNewTouchesNothing(t *testing.T) {
	if _, err := NewFileSink(FileSinkConfig{}); err == nil || !strings.Contains(err.Error(), "FileSinkConfig.Dir") {
		t.Errorf("without a directory: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := newSink(t, FileSinkConfig{Dir: dir})
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("New made the directory: %v", err)
	}
	if got, err := s.Load(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("an empty directory: %v, %v", got, err)
	}
}

func TestAFileIsAPod(t *testing.T) {
	for _, sync := range []bool{false, true} {
		dir := t.TempDir()
		s := newSink(t, FileSinkConfig{Dir: dir, Sync: sync})
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning} {
			if err := s.Update(t.Context(), pod("p"), v1.PodStatus{Phase: phase}); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, "ns_p_uid-p.json")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got v1.Pod
		if err := json.Unmarshal(content, &got); err != nil {
			t.Fatal(err)
		}
		if got.Kind != "Pod" || got.APIVersion != "v1" || got.Name != "p" || got.Namespace != "ns" || got.UID != "uid-p" ||
			got.Labels["app"] != "x" || got.Status.Phase != v1.PodRunning {
			t.Errorf("file says %s", content)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&^0o640 != 0 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		loaded, err := newSink(t, FileSinkConfig{Dir: dir}).Load(t.Context())
		if err != nil || len(loaded) != 1 || loaded["uid-p"].Phase != v1.PodRunning {
			t.Errorf("loaded %v, %v", loaded, err)
		}
		for range 2 {
			if err := s.Delete(t.Context(), pod("p")); err != nil {
				t.Error(err)
			}
		}
		if left := names(t, dir); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	}
}

var osDisk = durable.OS{DirMode: 0o750, FileMode: 0o640}

// failing is a disk that counts and fails on demand.
type failing struct {
	durable.OS
	writes *int
	err    *error
}

func (f failing) Write(path string, data []byte, sync bool) error {
	*f.writes++
	if *f.err != nil {
		_ = f.OS.Write(path, data[:len(data)/2], sync)
		return *f.err
	}
	return f.OS.Write(path, data, sync)
}

func TestWhatStaysIsNotWritten(t *testing.T) {
	writes, none := 0, error(nil)
	s := newSink(t, FileSinkConfig{Dir: t.TempDir(), files: failing{OS: osDisk, writes: &writes, err: &none}})
	for range 3 {
		if err := s.Update(t.Context(), pod("p"), v1.PodStatus{Phase: v1.PodRunning}); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes of one content", writes)
	}
}

// A full disk leaves the old file, and the manager tries until there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		writes, disk := 0, error(nil)
		s := newSink(t, FileSinkConfig{Dir: dir, files: failing{OS: osDisk, writes: &writes, err: &disk}})
		m, err := New(Config{Sink: s})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = m.Run(t.Context()) }()
		synctest.Wait()
		phase := func() v1.PodPhase {
			s.mu.Lock()
			defer s.mu.Unlock()
			content, err := os.ReadFile(filepath.Join(dir, "ns_p_uid-p.json"))
			got, derr := decode("ns_p_uid-p.json", content)
			if err := errors.Join(err, derr); err != nil {
				t.Fatal(err)
			}
			return got.Status.Phase
		}
		m.Set(pod("p"), v1.PodStatus{Phase: v1.PodPending})
		synctest.Wait()
		set := func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			disk = err
		}
		set(fmt.Errorf("write: %w", syscall.ENOSPC))
		m.Set(pod("p"), v1.PodStatus{Phase: v1.PodRunning})
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := phase(); got != v1.PodPending {
			t.Errorf("phase %s on a full disk, want the old one", got)
		}
		if left := names(t, dir); len(left) != 1 {
			t.Errorf("%v is left", left)
		}
		set(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := phase(); got != v1.PodRunning {
			t.Errorf("phase %s when there is room again", got)
		}
	})
}

func TestDamagedFilesAreSetAside(t *testing.T) {
	dir := t.TempDir()
	var told []string
	onCorrupt := func(file, aside string, err error) {
		if !errors.Is(err, ErrCorruptFile) {
			t.Errorf("cause %v", err)
		}
		told = append(told, filepath.Base(file)+" "+filepath.Base(aside))
	}
	s := newSink(t, FileSinkConfig{Dir: dir, OnCorrupt: onCorrupt})
	if err := s.Update(t.Context(), pod("good"), v1.PodStatus{Phase: v1.PodRunning}); err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(filepath.Join(dir, "ns_good_uid-good.json"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for name, content := range map[string][]byte{"ns_a_1.json": []byte("{"), "ns_b_2.json": other, "ns_c_3.json": nil} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := newSink(t, FileSinkConfig{Dir: dir, OnCorrupt: onCorrupt}).Load(t.Context())
		if err != nil || len(got) != 1 || got["uid-good"].Phase != v1.PodRunning {
			t.Errorf("loaded %v, %v", got, err)
		}
	}
	want := []string{
		"ns_a_1.json ns_a_1.json.corrupt-1", "ns_b_2.json ns_b_2.json.corrupt-1", "ns_c_3.json ns_c_3.json.corrupt-1",
		"ns_a_1.json ns_a_1.json.corrupt-2", "ns_b_2.json ns_b_2.json.corrupt-2", "ns_c_3.json ns_c_3.json.corrupt-2",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	s := newSink(t, FileSinkConfig{Dir: dir})
	long := pod(strings.Repeat("n", 253))
	long.UID = types.UID(strings.Repeat("u", 300))
	for _, p := range []*v1.Pod{pod("kept"), pod("gone"), long} {
		if err := s.Update(t.Context(), p, v1.PodStatus{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"notes.txt", "other.json", "ns_x_y.json.corrupt-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Prune(map[types.UID]bool{"uid-kept": true, long.UID: true, "uid-gone": false}); err != nil {
		t.Fatal(err)
	}
	want := []string{"notes.txt", "ns_kept_uid-kept.json", fileName(long), "ns_x_y.json.corrupt-1", "other.json"}
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// Names are safe, whatever a pod is called, and no two pods share one.
func FuzzFileName(f *testing.F) {
	f.Add("ns", "name", "uid", "ns", "name_uid", "")
	f.Add("../..", ".hidden", "a/b\x00", "%2E", "~", strings.Repeat("ä", 400))
	f.Fuzz(func(t *testing.T, ns, name, uid, ns2, name2, uid2 string) {
		a := fileName(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(uid)}})
		b := fileName(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns2, Name: name2, UID: types.UID(uid2)}})
		if len(a)+len(durable.TempSuffix)+len(durable.AsideSuffix)+3 > 255 || a[0] == '.' || filepath.Base(a) != a || strings.ContainsRune(a, 0) {
			t.Errorf("name %q", a)
		}
		if (a == b) != (ns == ns2 && name == name2 && uid == uid2) {
			t.Errorf("%q, %q, %q and %q, %q, %q are in %q and %q", ns, name, uid, ns2, name2, uid2, a, b)
		}
	})
}

// Whatever is in a file, it is a pod of that name, or damaged.
func FuzzDecode(f *testing.F) {
	good, _ := encode(pod("p"), v1.PodStatus{Phase: v1.PodRunning})
	f.Add("ns_p_uid-p.json", good)
	f.Add("ns_p_uid-p.json", []byte("null"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		got, err := decode(name, content)
		if err == nil && fileName(got) != name || err != nil && !errors.Is(err, ErrCorruptFile) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// killing kills its own process at a step.
type killing struct {
	durable.OS
	left *int
}

func (k killing) step() {
	if *k.left--; *k.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (k killing) Write(path string, data []byte, sync bool) error {
	k.step()
	for _, part := range [][]byte{nil, data[:len(data)/2], data} {
		if err := k.OS.Write(path, part, sync); err != nil {
			return err
		}
		k.step()
	}
	return nil
}

func (k killing) Rename(from, to string) error {
	err := k.OS.Rename(from, to)
	k.step()
	return err
}

func (k killing) SyncDir(path string) error {
	err := k.OS.SyncDir(path)
	k.step()
	return err
}

// A process that is killed after any step leaves the old status or the new
// one, and nothing else.
func TestKilledAtEveryStep(t *testing.T) {
	if dir := os.Getenv("FILESINK_DIR"); dir != "" {
		left, err := strconv.Atoi(os.Getenv("FILESINK_STEP"))
		if err != nil {
			t.Fatal(err)
		}
		s := newSink(t, FileSinkConfig{Dir: dir, Sync: true, files: killing{OS: osDisk, left: &left}})
		if err := s.Update(t.Context(), pod("p"), v1.PodStatus{Phase: v1.PodRunning}); err != nil {
			t.Fatal(err)
		}
		return
	}
	for step := 1; ; step++ {
		dir := t.TempDir()
		if err := newSink(t, FileSinkConfig{Dir: dir}).Update(t.Context(), pod("p"), v1.PodStatus{Phase: v1.PodPending}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtEveryStep$")
		cmd.Env = append(os.Environ(), "FILESINK_DIR="+dir, "FILESINK_STEP="+strconv.Itoa(step))
		err := cmd.Run()
		got, lerr := newSink(t, FileSinkConfig{Dir: dir}).Load(t.Context())
		if ph := got["uid-p"].Phase; lerr != nil || ph != v1.PodPending && ph != v1.PodRunning {
			t.Errorf("killed at step %d: loaded %v, %v", step, got, lerr)
		}
		if left := names(t, dir); len(left) != 1 {
			t.Errorf("killed at step %d: %v is left", step, left)
		}
		if err == nil {
			if step < 6 {
				t.Errorf("only %d steps", step)
			}
			return
		}
	}
}
