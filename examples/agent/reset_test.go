package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestResetOfNothing(t *testing.T) {
	stdout, stderr, code := invoke(t, "reset", "--root-dir", t.TempDir()+"/none")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "removed 0 pods and 0 containers in ") || !strings.Contains(stdout, "; images stay (--images)") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestConfirmed(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " Yes\n": true, "n\n": false, "\n": false, "": false, "y": false, "maybe\n": false} {
		if got := confirmed(stdio{in: strings.NewReader(answer)}); got != want {
			t.Errorf("%q: %t", answer, got)
		}
	}
}

func TestProgress(t *testing.T) {
	for _, tc := range []struct {
		size int64
		want string
	}{
		{4096, "\ra.tar [" + strings.Repeat("=", 15) + strings.Repeat(" ", 15) + "] 2.0KiB of 4.0KiB\x1b[K\r\x1b[K"},
		{1024, "\ra.tar [" + strings.Repeat("=", 30) + "] 2.0KiB of 1.0KiB\x1b[K\r\x1b[K"}, // it has grown
		{0, "\ra.tar: 2.0KiB\x1b[K\r\x1b[K"},
	} {
		var b bytes.Buffer
		p := &progress{in: strings.NewReader(strings.Repeat("x", 2048)), out: &b, what: "a.tar", size: tc.size}
		if _, err := io.ReadFull(p, make([]byte, 2048)); err != nil {
			t.Fatal(err)
		}
		p.end()
		if b.String() != tc.want {
			t.Errorf("%q, want %q", b.String(), tc.want)
		}
	}
	p := &progress{in: strings.NewReader("x")}
	if b, err := io.ReadAll(p); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	p.end()
}
