package podmgr

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What is on the disk is read by scan; no watching is needed to tell.
func TestScanKeepsTheLastGoodVersion(t *testing.T) {
	for _, tc := range []struct {
		name   string
		broken []string
	}{
		{"a field that is not there", []string{podYAML("a", "") + podYAML("b", ", bogus: 1") + configMapYAML("c", "1")}},
		{"no YAML, again and again", []string{"{ bad 1", "{ bad 2", "{ bad 3"}},
		{"an array", []string{"[]"}},
		{"emptied", []string{""}},
		{"blank", []string{"\n \n"}},
		{"emptied after it broke", []string{"{ bad", ""}},
		{"a broken ConfigMap", []string{podYAML("a", "") + podYAML("b", "") + configMapYAML("c", "1") + "bogus: 1\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.yaml")
			d := newDirectory(t, filepath.Dir(file))
			replace(t, file, podYAML("a", "")+podYAML("b", "")+configMapYAML("c", "1"))
			d.scan(t.Context())
			for _, content := range tc.broken {
				replace(t, file, content)
				d.scan(t.Context())
			}
			s := d.snapshot()
			if len(s.Pods) != 2 || len(s.ConfigMaps) != 1 || len(s.Problems) != 1 || !s.Problems[0].Kept {
				t.Errorf("%d pods, %d ConfigMaps, problems %v", len(s.Pods), len(s.ConfigMaps), s.Problems)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			d.scan(t.Context())
			if s := d.snapshot(); len(s.Pods)+len(s.ConfigMaps)+len(s.Problems) != 0 {
				t.Errorf("after the file went: %v", s)
			}
		})
	}
}

// A writer that truncated a file and does nothing more must not end the pod.
func TestScanLeavesAnOpenFileAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	d := newDirectory(t, filepath.Dir(file))
	replace(t, file, podYAML("a", "")+podYAML("b", ""))
	d.scan(t.Context())
	w, err := os.OpenFile(file, os.O_TRUNC|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, again := d.scan(t.Context()); again != busyPoll {
		t.Errorf("looks again in %v, want %v", again, busyPoll)
	}
	for _, part := range []string{"", podYAML("a", ", labels: {x: z}")} {
		if _, err := w.WriteString(part); err != nil {
			t.Fatal(err)
		}
		long := time.Now().Add(-time.Minute)
		if err := os.Chtimes(file, long, long); err != nil {
			t.Fatal(err)
		}
		if _, again := d.scan(t.Context()); again != stuckPoll {
			t.Errorf("looks again in %v, want %v", again, stuckPoll)
		}
		if s := d.snapshot(); len(s.Pods) != 2 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "open for writing") {
			t.Errorf("%d bytes written: %d pods, problems %v", len(part), len(s.Pods), s.Problems)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	d.scan(t.Context())
	if s := d.snapshot(); len(s.Pods) != 1 || s.Pods[0].Labels["x"] != "z" || len(s.Problems) != 0 {
		t.Errorf("after the writer closed it: %v, problems %v", s.Pods, s.Problems)
	}
}

// Read has what the source delivers first: what is in effect, and the problems.
func TestReadOnce(t *testing.T) {
	dir := t.TempDir()
	replace(t, filepath.Join(dir, "a.yaml"), podYAML("a", ""))
	replace(t, filepath.Join(dir, "b.yaml"), podYAML("a", "")+"---\nkind: Job\n")
	replace(t, filepath.Join(dir, "b.yaml~"), podYAML("c", ""))
	s, err := Read(t.Context(), DirectoryConfig{Path: dir, NodeName: "n"})
	if err != nil || len(s.Pods) != 1 || s.Pods[0].Name != "a-n" || s.Files[s.Pods[0].UID] != filepath.Join(dir, "a.yaml") || len(s.Problems) != 2 {
		t.Errorf("%v: pods %v, problems %v", err, s.Pods, s.Problems)
	}
	s, err = Read(t.Context(), DirectoryConfig{Path: filepath.Join(dir, "a.yaml"), NodeName: "n"})
	if err != nil || len(s.Pods) != 1 || len(s.Problems) != 0 {
		t.Errorf("of a file: %v: pods %v, problems %v", err, s.Pods, s.Problems)
	}
	if _, err := Read(t.Context(), DirectoryConfig{Path: filepath.Join(dir, "none"), NodeName: "n"}); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

func TestScanKeepsAPodOfAnUnreadableFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	d := newDirectory(t, filepath.Dir(file))
	replace(t, file, podYAML("a", ""))
	d.scan(t.Context())
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.yaml", file); err != nil { // a loop: another error than "not there"
		t.Fatal(err)
	}
	d.scan(t.Context())
	if s := d.snapshot(); len(s.Pods) != 1 || len(s.Problems) != 1 {
		t.Errorf("%d pods, problems %v", len(s.Pods), s.Problems)
	}
}

func TestScanTakesTheOlderOfTwoFilesWithOnePod(t *testing.T) {
	dir := t.TempDir()
	d := newDirectory(t, dir)
	replace(t, filepath.Join(dir, "b.yaml"), podYAML("a", ", labels: {from: b}"))
	replace(t, filepath.Join(dir, ".hidden.yaml"), podYAML("hidden", ""))
	d.scan(t.Context())
	d.snapshot()
	replace(t, filepath.Join(dir, "a.yaml"), podYAML("a", ", labels: {from: a}"))
	d.scan(t.Context())
	if s := d.snapshot(); len(s.Pods) != 1 || s.Pods[0].Labels["from"] != "b" || len(s.Problems) != 1 || s.Problems[0].Document != 1 {
		t.Errorf("pods %v, problems %v", s.Pods, s.Problems)
	}
}

// listen runs a source; next waits for its next state.
func listen(t *testing.T, s Source) (next func() Snapshot) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	states, done := make(chan Snapshot, 1000), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(s Snapshot) { states <- s }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() Snapshot {
		t.Helper()
		select {
		case s := <-states:
			return s
		case <-time.After(testTimeout):
			t.Fatal("nothing is heard of the source")
			return Snapshot{}
		}
	}
}

// until waits for a state with so many pods.
func until(t *testing.T, next func() Snapshot, pods int) Snapshot {
	t.Helper()
	for {
		if s := next(); len(s.Pods) == pods {
			return s
		}
	}
}

func TestDirectoryFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	next := listen(t, newDirectory(t, dir)) // it rescans once an hour only
	if s := next(); len(s.Pods) != 0 {
		t.Errorf("first state = %v, want an empty one", s.Pods)
	}
	replace(t, filepath.Join(dir, "a.yaml"), podYAML("a", ""))
	first := until(t, next, 1).Pods[0]
	if err := os.WriteFile(filepath.Join(dir, "b.yaml"), []byte(podYAML("b", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, next, 2)
	replace(t, filepath.Join(dir, "a.yaml"), podYAML("a", ", labels: {x: z}"))
	if s := until(t, next, 2); s.Pods[0].UID == first.UID {
		t.Error("the pod has its old UID though the manifest changed")
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if s := until(t, next, 1); s.Pods[0].Name != "b-n1" {
		t.Errorf("left is %s, want b-n1", s.Pods[0].Name)
	}
}

// A manifest that was removed and is there again at once, as it was, is a wish
// to begin anew.
func TestDirectorySeesARemovalThatIsUndone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	replace(t, file, podYAML("a", ""))
	next := listen(t, newDirectory(t, filepath.Dir(file)))
	was := until(t, next, 1).Pods[0]
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte(podYAML("a", "")), 0o600)); err != nil {
		t.Fatal(err)
	}
	until(t, next, 0)
	if is := until(t, next, 1).Pods[0]; is.UID != was.UID {
		t.Errorf("the pod's UID is %s; want %s", is.UID, was.UID)
	}
}

// Nothing of the path is there at first, and nobody polls.
func TestDirectoryWaitsForItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "yet", "there")
	next := listen(t, newDirectory(t, path))
	if s := next(); len(s.Pods) != 0 {
		t.Errorf("first state = %v, want an empty one", s.Pods)
	}
	for range 2 {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		replace(t, filepath.Join(path, "a.yaml"), podYAML("a", ""))
		until(t, next, 1)
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		until(t, next, 0)
	}
}
