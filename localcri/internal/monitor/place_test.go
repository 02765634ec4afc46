//go:build linux

package monitor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is placed can be executed; it is left alone while it is whole, and another program has
// another name.
func TestPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	const script = "#!/bin/sh\necho one\n"
	one, err := place(dir, []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	two, err := place(dir, []byte("#!/bin/sh\necho two\n"))
	if err != nil || one == two {
		t.Fatal(one, two, err)
	}
	for path, want := range map[string]string{one: "one\n", two: "two\n"} {
		if out, err := exec.Command(path).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", path, out, err, want)
		}
	}
	before, err := os.Stat(one)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := place(dir, []byte(script)); again != one || err != nil {
		t.Error(again, err)
	}
	if after, err := os.Stat(one); err != nil || !os.SameFile(before, after) {
		t.Error("it was written again")
	}
	for _, damage := range []string{"", script + "more", strings.Repeat("x", len(script))} {
		if err := os.WriteFile(one, []byte(damage), 0o700); err != nil {
			t.Fatal(err)
		}
		if again, err := place(dir, []byte(script)); again != one || err != nil {
			t.Error(again, err)
		}
		if b, err := os.ReadFile(one); err != nil || string(b) != script {
			t.Errorf("%q in place of %q: %v", b, damage, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := place("/dev/null/bin", nil); err == nil {
		t.Error("it was placed below a file")
	}
}
