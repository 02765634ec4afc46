//go:build linux

package programpages

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const list = `00400000-004b5000 r-xp 00000000 fe:00 10      /opt/a program
Rss:                 100 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
004b5000-005ac000 r--p 000b5000 fe:00 10      /opt/a program
Anonymous:             0 kB
005ac000-005b0000 r--p 001ac000 fe:00 10      /opt/a program
Anonymous:            12 kB
005b0000-005b7000 rw-p 001b0000 fe:00 10      /opt/a program
Anonymous:             0 kB
005c0000-005c1000 r--s 001b0000 fe:00 10      /opt/a program
Anonymous:             0 kB
005d0000-005d1000 r--p 00000000 fe:00 11      /other/opt/a program
Anonymous:             0 kB
005e0000-005e1000 r--p 00000000 fe:00 11      /x /opt/a program
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0 
Anonymous:             0 kB
x-y r--p 00000000 fe:00 10 /opt/a program
Anonymous:             0 kB
7ffe0000-7ffe1000 r-xp 00000000 00:00 0       [vdso]
Anonymous:             0 kB
00600000-00700000 r--p 001b0000 fe:00 10      /opt/a program
Rss:                 100 kB
`

func TestClean(t *testing.T) {
	want := []Span{{0x400000, 0x4b5000}, {0x4b5000, 0x5ac000}}
	if got := clean([]byte(list), []byte("/opt/a program")); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	for i := range len(list) { // it may be cut anywhere
		if got := clean([]byte(list[:i]), []byte("/opt/a program")); len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("%x of the first %d bytes, want a part of %x", got, i, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte(list), []byte("/opt/a program"))
	f.Add([]byte("\n \n:\nAnonymous: 0 kB\n"), []byte(""))
	f.Fuzz(func(t *testing.T, smaps, program []byte) {
		for _, s := range clean(smaps, program) {
			if s.Start >= s.End {
				t.Errorf("%x is empty", s)
			}
		}
	})
}

// The pages go, and the program still works, however it was linked.
func TestDrop(t *testing.T) {
	before := shared(t)
	spans := Find()
	if len(spans) == 0 {
		t.Fatal("no mapping of the program is known")
	}
	Drop(spans)
	if after := shared(t); after >= before {
		t.Errorf("%d pages of files before, %d after; want less", before, after)
	}
}

func TestDropOfProgramThatMayBeAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	program := filepath.Join(t.TempDir(), "pie.test")
	for _, args := range [][]string{
		{"go", "test", "-c", "-o", program, "-buildmode=pie", "."},
		{program, "-test.run=^TestDrop$"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

// shared counts pages of files that are resident.
func shared(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	var rss, anonymous int
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		switch f[0] {
		case "Rss:":
			rss, err = strconv.Atoi(f[1])
		case "Anonymous:":
			anonymous, err = strconv.Atoi(f[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return rss - anonymous
}
