package localcri

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	one, err := place(dir, []byte("#!/bin/sh\necho one\n"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := place(dir, []byte("#!/bin/sh\necho two\n"))
	if err != nil || one == two {
		t.Fatal(one, two, err)
	}
	for path, want := range map[string]string{one: "one", two: "two"} {
		if out, err := exec.Command(path).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %q, %v", path, out, err)
		}
	}
	before, err := os.Stat(one)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := place(dir, []byte("#!/bin/sh\necho one\n")); again != one || err != nil {
		t.Error(again, err)
	}
	if after, err := os.Stat(one); err != nil || !os.SameFile(before, after) {
		t.Error("it was written again")
	}
	if err := os.WriteFile(one, []byte("damaged"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := place(dir, []byte("#!/bin/sh\necho one\n")); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command(one).CombinedOutput(); err != nil || string(out) != "one\n" {
		t.Errorf("a damaged one: %q, %v", out, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := place("/dev/null/bin", nil); err == nil {
		t.Error("it was placed below a file")
	}
}

// A packed program is the same program, and a damaged copy of it is replaced.
func TestPlacePacked(t *testing.T) {
	program := append([]byte("#!/bin/sh\necho one\n#"), bytes.Repeat([]byte("x"), 1<<20)...)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(program)
	_ = w.Close()
	dir := filepath.Join(t.TempDir(), "bin")
	path, err := place(dir, packed.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	placed := func() fs.FileInfo {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, program) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := placed()
	if again, err := place(dir, packed.Bytes()); again != path || err != nil || !os.SameFile(before, placed()) {
		t.Error("it was written again", again, err)
	}
	for _, damage := range []string{"", "#!/bin/sh\necho two\n", strings.Repeat("x", len(program))} {
		if err := os.WriteFile(path, []byte(damage), 0o700); err != nil {
			t.Fatal(err)
		}
		if again, err := place(dir, packed.Bytes()); again != path || err != nil {
			t.Error(again, err)
		}
		placed()
	}
	for _, bad := range [][]byte{gzipMagic, packed.Bytes()[:packed.Len()/2]} {
		if _, err := place(filepath.Join(t.TempDir(), "bin"), bad); err == nil || !strings.Contains(err.Error(), "unpack") {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

func TestFindPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := findExecutors(); err == nil || !strings.Contains(err.Error(), "neither runc nor crun") {
		t.Error(err)
	}
	if _, err := findMonitor(); err == nil || !strings.Contains(err.Error(), "go build -o nodewright-monitor") {
		t.Error(err)
	}
	for _, name := range []string{"crun", monitorName} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := findExecutors(); err != nil || len(found) != 1 || found["crun"] != filepath.Join(dir, "crun") {
		t.Error(found, err)
	}
	if path, err := findMonitor(); err != nil || path != filepath.Join(dir, monitorName) {
		t.Error(path, err)
	}
}
