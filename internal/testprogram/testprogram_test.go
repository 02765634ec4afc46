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
