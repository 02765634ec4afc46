package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"text/tabwriter"
	"time"
)

// plan is the work of the machine. The initramfs has it as a file.
type plan struct {
	Modules []string // files to load, in this order
	Env     []string // of the tests
	Tests   []testBinary
	Run     string        // -test.run
	Args    []string      // more arguments of the tests
	Limit   time.Duration // of the whole run
	Systemd bool          // is process 1
	Command string        // of a shell, in place of tests
	Dir     string        // where it runs
	Out     string        // in a user-mode Linux: the other system's directory that is outDir here
}

// names returns the names of the expected results.
func (p plan) names() []string {
	if p.Command != "" {
		return []string{commandName}
	}
	var names []string
	for _, t := range p.Tests {
		names = append(names, t.Package)
	}
	return names
}

// commandName is the name of a plan's command in the list of packages.
const commandName = "command"

// A testBinary is a compiled test of one package.
type testBinary struct {
	Package string // path within the module
	Dir     string // where it runs
	File    string
}

// result is the machine's report on a package: a line of JSON on its second serial
// port. The last line has End and no package.
type result struct {
	Package string   `json:",omitempty"`
	Passed  int      // tests, without their subtests
	Skipped []string `json:",omitempty"`
	Failed  []string `json:",omitempty"`
	Took    time.Duration
	Error   string `json:",omitempty"` // how the binary ended, if not well
	End     bool   `json:",omitempty"`
}

func (r result) good() bool { return r.Error == "" && len(r.Failed) == 0 }

// results are all reports of a machine.
type results struct {
	of    map[string]result
	ended bool // the report is complete
	error string
}

// parseResults parses the output of the second serial port. It ignores an incomplete
// line, which remains if the machine stops during a write.
func parseResults(b []byte) results {
	r := results{of: map[string]result{}}
	for line := range bytes.Lines(b) {
		var one result
		if json.Unmarshal(bytes.TrimSpace(line), &one) != nil {
			continue
		}
		if one.End {
			r.ended, r.error = true, one.Error
			continue
		}
		r.of[one.Package] = one
	}
	return r
}

// good reports whether every package of the plan has passed.
func (r results) good(p plan) bool {
	for _, name := range p.names() {
		if one, ok := r.of[name]; !ok || !one.good() {
			return false
		}
	}
	return r.ended && r.error == "" && len(p.names()) > 0
}

func (r results) summary(p plan, version string, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\ntest-vm: Linux %s, cgroup v2, %d packages, %s\n", version, len(p.Tests), took.Round(time.Second))
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, name := range p.names() {
		one, ok := r.of[name]
		switch {
		case !ok:
			fmt.Fprintf(table, "FAIL\t%s\tthe machine ended first\n", name)
			continue
		case one.good():
			fmt.Fprint(table, "ok")
		default:
			fmt.Fprint(table, "FAIL")
		}
		fmt.Fprintf(table, "\t%s\t%.1fs\t%d passed", name, one.Took.Seconds(), one.Passed)
		for _, k := range []struct {
			what  string
			names []string
		}{{"failed", one.Failed}, {"skipped", one.Skipped}} {
			if len(k.names) > 0 {
				fmt.Fprintf(table, ", %d %s: %s", len(k.names), k.what, strings.Join(k.names, " "))
			}
		}
		if one.Error != "" {
			fmt.Fprintf(table, "; %s", one.Error)
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // a strings.Builder takes everything
	switch {
	case r.error != "":
		fmt.Fprintf(&b, "the machine: %s\n", r.error)
	case !r.ended:
		fmt.Fprintln(&b, "the machine ended before it had told all")
	}
	return b.String()
}

// A tally counts the tests in the output of a binary run with -test.v.
type tally struct {
	res  *result
	part []byte // of a line that has not ended
}

func (t *tally) Write(b []byte) (int, error) {
	t.part = append(t.part, b...)
	for {
		line, rest, ended := bytes.Cut(t.part, []byte("\n"))
		if !ended {
			return len(b), nil
		}
		t.line(string(line))
		t.part = rest
	}
}

func (t *tally) line(line string) {
	rest, ok := strings.CutPrefix(line, "--- ") // a subtest's is indented
	if !ok {
		return
	}
	verdict, rest, _ := strings.Cut(rest, ": ")
	name, _, _ := strings.Cut(rest, " ")
	switch verdict {
	case "PASS":
		t.res.Passed++
	case "FAIL":
		t.res.Failed = append(t.res.Failed, name)
	case "SKIP":
		t.res.Skipped = append(t.res.Skipped, name)
	}
}

// noCR drops the carriage returns of a terminal's lines.
type noCR struct{ w io.Writer }

func (n noCR) Write(b []byte) (int, error) {
	_, err := n.w.Write(bytes.ReplaceAll(b, []byte("\r"), nil))
	return len(b), err
}

// binaryName returns a file name for the test binary of a package.
func binaryName(pkg string) string {
	if pkg = path.Clean(pkg); pkg == "." {
		pkg = "root"
	}
	return strings.ReplaceAll(pkg, "/", "_") + ".test"
}
