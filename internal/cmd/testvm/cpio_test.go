package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// cpioEntry is what an entry of an archive says.
type cpioEntry struct {
	name         string
	mode, ino    int64
	major, minor int64
	data         string
}

// readCpio reads an archive as the kernel does: by the fields' places and
// sizes, with no forgiveness.
func readCpio(t *testing.T, b []byte) []cpioEntry {
	t.Helper()
	var all []cpioEntry
	align := func(n int) int { return (n + 3) / 4 * 4 }
	for at := 0; ; {
		const header = 110
		if len(b) < at+header || string(b[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		var f [13]int64
		for i := range f {
			from := at + 6 + 8*i
			v, err := strconv.ParseInt(string(b[from:from+8]), 16, 64)
			if err != nil {
				t.Fatalf("field %d at %d: %v", i, from, err)
			}
			f[i] = v
		}
		name := string(b[at+header : at+header+int(f[11])])
		if !strings.HasSuffix(name, "\x00") {
			t.Fatalf("name %q does not end", name)
		}
		at = align(at + header + len(name))
		e := cpioEntry{name: name[:len(name)-1], ino: f[0], mode: f[1], major: f[9], minor: f[10], data: string(b[at : at+int(f[6])])}
		at = align(at + int(f[6]))
		if e.name == "TRAILER!!!" {
			if at != len(b) {
				t.Fatalf("%d bytes after the trailer", len(b)-at)
			}
			return all
		}
		all = append(all, e)
	}
}

func TestCpio(t *testing.T) {
	var b bytes.Buffer
	c := newCpioWriter(&b)
	c.dir("proc")
	c.charDevice("dev/console", 5, 1)
	for n := range 5 { // every way of being unaligned
		c.file("a/b/"+strings.Repeat("x", n+1), 0o755, []byte(strings.Repeat("y", n)))
	}
	c.file("plan", 0o644, nil)
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	seen := map[int64]bool{}
	for _, e := range readCpio(t, b.Bytes()) {
		fmt.Fprintf(&got, "%s %o %d:%d %s\n", e.name, e.mode, e.major, e.minor, e.data)
		if seen[e.ino] {
			t.Errorf("%s is a hard link", e.name)
		}
		seen[e.ino] = true
	}
	want := `proc 40755 0:0 
dev 40755 0:0 
dev/console 20600 5:1 
a 40755 0:0 
a/b 40755 0:0 
a/b/x 100755 0:0 
a/b/xx 100755 0:0 y
a/b/xxx 100755 0:0 yy
a/b/xxxx 100755 0:0 yyy
a/b/xxxxx 100755 0:0 yyyy
plan 100644 0:0 
`
	if got.String() != want {
		t.Errorf("archive holds\n%swant\n%s", got.String(), want)
	}
}

type fullDisk struct{}

var errFull = errors.New("full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestCpioErrors(t *testing.T) {
	c := newCpioWriter(fullDisk{})
	c.file("x", 0o644, nil)
	if err := c.close(); !errors.Is(err, errFull) {
		t.Errorf("error %v, want that of the writer", err)
	}
	for _, name := range []string{"/init", "../x", "", "a//b"} {
		c := newCpioWriter(&bytes.Buffer{})
		c.entry(name, cpioFile|0o644, nil, 0, 0)
		if c.close() == nil {
			t.Errorf("%q is taken as a name", name)
		}
	}
}

func TestWriteInitramfs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "initramfs")
	p := plan{Tests: []testBinary{{Package: "cri", Dir: "/src/cri", File: "/src/build/vm/tests/cri.test"}}, Env: []string{"CI=true"}}
	self := filepath.Join(t.TempDir(), "self")
	if err := os.WriteFile(self, []byte("this program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeInitramfs(file, self, p, []module{{"virtio", []byte("ko 1")}, {"9p", []byte("ko 2")}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]cpioEntry{}
	for _, e := range readCpio(t, b) {
		found[e.name] = e
	}
	if e := found["init"]; e.mode != cpioFile|0o755 || e.data != "this program" {
		t.Errorf("init has mode %o and holds %q", e.mode, e.data)
	}
	if found["modules/9p.ko"].data != "ko 2" {
		t.Errorf("module 9p holds %q", found["modules/9p.ko"].data)
	}
	var in plan
	if err := json.Unmarshal([]byte(found[planFile].data), &in); err != nil {
		t.Fatal(err)
	}
	p.Modules = []string{"modules/virtio.ko", "modules/9p.ko"}
	if got, want := fmt.Sprint(in), fmt.Sprint(p); got != want {
		t.Errorf("plan %s, want %s", got, want)
	}
}
