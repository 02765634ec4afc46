package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var twoTests = plan{Tests: []testBinary{{Package: "cri"}, {Package: "agent"}}}

// A machine is trusted only when it has told everything.
func TestVerdict(t *testing.T) {
	const (
		cri   = `{"Package":"cri","Passed":3,"Took":1500000000}` + "\r\n"
		agent = `{"Package":"agent","Passed":1,"Skipped":["TestOld"],"Took":0}` + "\r\n"
		end   = `{"End":true}` + "\r\n"
	)
	for _, c := range []struct {
		name, told string
		good       bool
		says       string
	}{
		{"all passed", cri + agent + end, true, "ok  cri    1.5s  3 passed\nok  agent  0.0s  1 passed, 1 skipped: TestOld\n"},
		{"nothing", "", false, "FAIL  cri    no result: the machine stopped before\nFAIL  agent  no result: the machine stopped before\nthe machine stopped before"},
		{"a panic between two", cri, false, "ok    cri    1.5s"},
		{"a panic in a line", cri + agent[:20], false, "FAIL  agent  no result: the machine stopped before"},
		{"a panic at the end", cri + agent, false, "the machine stopped before it had reported all results"},
		{"a package is missing", cri + end, false, "FAIL  agent"},
		{"a test failed", cri + `{"Package":"agent","Failed":["TestX"],"Error":"exit status 1"}` + "\n" + end, false, "FAIL  agent  0.0s  0 passed, 1 failed: TestX; exit status 1"},
		{"a binary died", cri + `{"Package":"agent","Passed":1,"Error":"signal: killed"}` + "\n" + end, false, "1 passed; signal: killed"},
		{"the runner failed", cri + agent + `{"End":true,"Error":"no plan"}`, false, "the machine: no plan\n"},
		{"noise", "\x00\n[1]\n" + cri + agent + end, true, "ok  agent"},
	} {
		r := parseResults([]byte(c.told))
		if got := r.good(twoTests); got != c.good {
			t.Errorf("%s: good = %v, want %v", c.name, got, c.good)
		}
		if got := r.summary(twoTests, "6.1", time.Minute); !strings.Contains(got, c.says) {
			t.Errorf("%s: the summary lacks %q:\n%s", c.name, c.says, got)
		}
	}
	if parseResults([]byte(end)).good(plan{}) {
		t.Error("nothing was tested, and that is good")
	}
}

func FuzzParseResults(f *testing.F) {
	f.Add([]byte(`{"Package":"cri"}` + "\n" + `{"End":true}`))
	f.Fuzz(func(t *testing.T, told []byte) {
		r := parseResults(told)
		if r.good(twoTests) && (!bytes.Contains(told, []byte("cri")) && !bytes.Contains(told, []byte(`\u`))) {
			t.Errorf("cri passed, of which nobody spoke: %q", told)
		}
		r.summary(twoTests, "6.1", 0)
	})
}

func TestTally(t *testing.T) {
	const output = `=== RUN   TestA
=== RUN   TestA/sub
--- PASS: TestA (0.02s)
    --- PASS: TestA/sub (0.01s)
--- SKIP: TestB (0.00s)
    b_test.go:7: no containerd
--- FAIL: TestC (1.00s)
    --- SKIP: TestC/x (0.00s)
--- PASS: TestD (0.00s)
FAIL
--- PASS: TestUnended`
	for name, read := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader} {
		var r result
		if _, err := io.Copy(&tally{res: &r}, read(strings.NewReader(output))); err != nil {
			t.Fatal(err)
		}
		if r.Passed != 2 || !slices.Equal(r.Failed, []string{"TestC"}) || !slices.Equal(r.Skipped, []string{"TestB"}) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestNoCR(t *testing.T) {
	var b bytes.Buffer
	if n, err := (noCR{&b}).Write([]byte("a\r\nb\r\n")); n != 6 || err != nil || b.String() != "a\nb\n" {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
}

func TestBinaryName(t *testing.T) {
	for pkg, want := range map[string]string{".": "root.test", "cri": "cri.test", "examples/agent": "examples_agent.test"} {
		if got := binaryName(pkg); got != want {
			t.Errorf("%s: %s, want %s", pkg, got, want)
		}
	}
}
