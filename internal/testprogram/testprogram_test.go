package testprogram

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A program that is up to date is not built anew, and one that runs may be replaced.
func TestCompile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/program\n")
	out := filepath.Join(dir, "out", "program")
	says := func(word string) os.FileInfo {
		t.Helper()
		write("main.go", "package main\n\nfunc main() { print(`"+word+"`) }\n")
		if err := Compile(t.Context(), dir, out, "."); err != nil {
			Fail(t, err)
		}
		said, err := exec.CommandContext(t.Context(), out).CombinedOutput()
		if err != nil || string(said) != word {
			t.Errorf("it says %q, %v; want %q", said, err, word)
		}
		info, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := says("one")
	if again := says("one"); !os.SameFile(first, again) {
		t.Error("built although it was up to date")
	}
	if other := says("two"); os.SameFile(first, other) {
		t.Error("written over, where it may be running")
	}
	write("main.go", "package main\n\nfunc main() { nothing() }\n")
	if err := Compile(t.Context(), dir, out, "."); err == nil {
		t.Error("no error where it does not compile")
	}
	t.Setenv("PATH", dir)
	if err := Compile(t.Context(), dir, out, "."); !errors.Is(err, ErrNoGo) {
		t.Errorf("without the go command: %v, want %v", err, ErrNoGo)
	}
}

// Without the go command, programs come from the directory that PREBUILT names.
func TestCompileTakesPrebuiltPrograms(t *testing.T) {
	dir := t.TempDir()
	prebuilt := filepath.Join(dir, "prebuilt")
	for name, text := range map[string]string{"cmd/a": "a", "cmd/b": "b", "cmd/b-tagged": "tagged"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(prebuilt, "cmd"), 0o755), os.WriteFile(filepath.Join(prebuilt, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("PREBUILT", prebuilt)
	for _, tc := range []struct {
		name, out, tags string
		packages        []string
		want            map[string]string // content of files below dir
	}{
		{"into a file", "one", "", []string{"./cmd/a"}, map[string]string{"one": "a"}},
		{"into a directory", "all/", "", []string{"./cmd/a", "./cmd/b"}, map[string]string{"all/a": "a", "all/b": "b"}},
		{"with tags", "two", "tagged", []string{"./cmd/b"}, map[string]string{"two": "tagged"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 {
				if err := compile(t.Context(), ".", dir+"/"+tc.out, tc.tags, tc.packages); err != nil {
					t.Fatal(err)
				}
			}
			for name, want := range tc.want {
				if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || err != nil {
					t.Errorf("%s is %q, %v; want %q", name, got, err, want)
				}
			}
		})
	}
	if err := Compile(t.Context(), ".", filepath.Join(dir, "three"), "./cmd/c"); !errors.Is(err, ErrNoGo) {
		t.Errorf("a program that is not there: %v, want %v", err, ErrNoGo)
	}
}
