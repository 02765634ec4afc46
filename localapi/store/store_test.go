package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/localapi/store"
)

func doc(name, value string) store.Document {
	return store.Document{
		Name: name + ".yaml", Object: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"k":"` + value + `"}}`),
		Notes: []byte(`{"n":1}`), By: "kubectl\nroot", At: time.Unix(1700000000, 0),
	}
}

func load(t *testing.T, s store.Store) map[string]store.Document {
	t.Helper()
	docs, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]store.Document{}
	for _, d := range docs {
		out[d.Name] = d
	}
	return out
}

func TestStores(t *testing.T) {
	dir := t.TempDir() + "/api"
	var m store.Memory
	for name, open := range map[string]func() store.Store{
		"dir":    func() store.Store { return store.NewDir(dir) },
		"memory": func() store.Store { return &m },
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			if got := load(t, s); len(got) != 0 {
				t.Fatalf("%v", got)
			}
			rev, err := s.Put(doc("a", "1"), "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Put(doc("a", "2"), ""); !errors.Is(err, store.ErrConflict) {
				t.Errorf("a second new one: %v", err)
			}
			next, err := s.Put(doc("a", "2"), rev)
			if err != nil || next == rev {
				t.Errorf("revision %s after %s, %v", next, rev, err)
			}
			if err := s.Delete("a.yaml", rev); !errors.Is(err, store.ErrConflict) {
				t.Errorf("removed at an old revision: %v", err)
			}
			again := open()
			got := load(t, again)["a.yaml"]
			if got.Revision != next || !strings.Contains(string(got.Object), `"k":"2"`) || string(got.Notes) != `{"n":1}` || got.Err != nil {
				t.Errorf("%+v", got)
			}
			for range 2 { // what is not there is no error
				if err := again.Delete("a.yaml", next); err != nil {
					t.Error(err)
				}
			}
			if got := load(t, open()); len(got) != 0 {
				t.Errorf("%v after all were removed", got)
			}
		})
	}
}

// A file is for people: who, when, and YAML without anything else above the notes.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	s := store.NewDir(dir)
	load(t, s)
	if _, err := s.Put(doc("a", "1"), ""); err != nil {
		t.Fatal(err)
	}
	const want = `# Written by kubectl root at 2023-11-14T22:13:20Z. You may edit this file; changes take effect when it is saved.
apiVersion: v1
data:
  k: "1"
kind: ConfigMap
metadata:
  name: a
# kept for clients of the API: {"n":1}
`
	got, err := os.ReadFile(filepath.Join(dir, "a.yaml"))
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if fi, _ := os.Stat(filepath.Join(dir, "a.yaml")); fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
	for _, bad := range []string{"../a.yaml", "a", ".a.yaml", "x/y.yaml", strings.Repeat("a", 300) + ".yaml"} {
		if _, err := s.Put(store.Document{Name: bad, Object: []byte("{}")}, ""); err == nil {
			t.Errorf("%q was written", bad)
		}
	}
}

// watching hands on what a Watch reports.
func watching(t *testing.T, s store.Store) <-chan store.Document {
	t.Helper()
	out := make(chan store.Document, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Watch(ctx, func(docs []store.Document) {
			for _, d := range docs {
				out <- d
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return out
}

func next(t *testing.T, c <-chan store.Document) store.Document {
	t.Helper()
	select {
	case d := <-c:
		return d
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing was told within 30 s")
		return store.Document{}
	}
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	s := store.NewDir(dir)
	load(t, s)
	changes := watching(t, s)
	rev, err := s.Put(doc("a", "1"), "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.yaml")
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"1"`, `"2"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	d := next(t, changes) // the writer's own change is not told
	if !strings.Contains(string(d.Object), `"k":"2"`) || string(d.Notes) != `{"n":1}` {
		t.Errorf("%+v", d)
	}
	if _, err := s.Put(doc("a", "3"), rev); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a writer that has not seen the edit: %v", err)
	}
	if _, err := s.Put(doc("a", "3"), d.Revision); err != nil {
		t.Errorf("a writer that has seen the edit: %v", err)
	}
	if err := os.WriteFile(path, []byte("a: b\n---\nc: d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := next(t, changes); d.Err == nil || d.Gone() {
		t.Errorf("a file of two documents: %+v", d)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if d := next(t, changes); !d.Gone() || d.Name != "a.yaml" {
		t.Errorf("a removed file: %+v", d)
	}
}

// However writes and looks fall together, a writer's own changes are never reported to
// it, and the edits of others always are.
func TestOwnChanges(t *testing.T) {
	dir := t.TempDir()
	s := store.NewDir(dir)
	load(t, s)
	changes := watching(t, s)
	for i := range 300 {
		name := fmt.Sprintf("own-%d", i%3)
		rev, err := s.Put(doc(name, strconv.Itoa(i)), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "edited.yaml"), fmt.Appendf(nil, "n: %d\n", i), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(name+".yaml", rev); err != nil {
			t.Fatal(err)
		}
	}
	for {
		d := next(t, changes)
		if d.Name != "edited.yaml" {
			t.Fatalf("an own change was reported: %+v", d)
		}
		if strings.Contains(string(d.Object), "299") {
			break
		}
	}
	if _, err := s.Put(doc("a", "1"), ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("n: 300\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for {
		if d := next(t, changes); d.Name == "a.yaml" && strings.Contains(string(d.Object), "300") {
			break
		}
	}
}

// What is no object of a bounded size is an error of its file alone.
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a: b"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"bomb": "a: &a [" + strings.Repeat("x,", 1000) + "]\nb: &b [" + strings.Repeat("*a,", 1000) + "]\nc: [" + strings.Repeat("*b,", 1000) + "]\n",
		"deep": strings.Repeat("[", 10_000), "list": "[1]", "text": "hello", "empty": "", "huge": "a: " + strings.Repeat("x", 11<<20),
		"many": strings.Repeat("- {}\n", 300_000),
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	got := load(t, store.NewDir(dir))
	if len(got) != 8 {
		t.Errorf("%d documents, want 8", len(got))
	}
	for name, d := range got {
		if d.Err == nil || d.Object != nil {
			t.Errorf("%s: %.100s, %v, want an error", name, d.Object, d.Err)
		}
	}
}

// A disk that fails, or a crash, at any step leaves the old file or the new one.
func TestCrash(t *testing.T) {
	for step := range 4 {
		dir := t.TempDir()
		s := store.NewDir(dir)
		load(t, s)
		rev, err := s.Put(doc("a", "1"), "")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		release := durable.Guard(dir, func(durable.Change) error {
			if n++; n > step {
				return errors.New("the power is gone")
			}
			return nil
		})
		_, err = s.Put(doc("a", "2"), rev)
		release()
		d := load(t, store.NewDir(dir))["a.yaml"]
		old, now := strings.Contains(string(d.Object), `"k":"1"`), strings.Contains(string(d.Object), `"k":"2"`)
		if d.Err != nil || !old && !now || err == nil && !now {
			t.Errorf("step %d: %+v after %v", step, d, err)
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte("a: b\n# kept for clients of the API: {}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		s := store.NewDir(dir)
		docs, err := s.Load(t.Context())
		if err != nil || len(docs) != 1 {
			t.Fatal(docs, err)
		}
		if d := docs[0]; d.Err == nil {
			if _, err := s.Put(d, d.Revision); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
