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

// plan tells the machine what to run. It is a JSON file in the initramfs.
type plan struct {
	Modules []string // files of the kernel modules to load, in this order
	Env     []string // environment of the tests
	Tests   []testBinary
	Run     string        // -test.run
	Args    []string      // more arguments of the tests
	Limit   time.Duration // time limit of the whole run
	Systemd bool          // run systemd as process 1
	Command string        // a shell command to run in place of tests
	Dir     string        // working directory of Command
	Out     string        // in a user-mode Linux: the host's directory that is mounted at outDir
	Results string        // the file to which the machine writes results

	Repository string // on a foreign machine: the path of the repository, a share of its own
}

// names returns the names of the expected results: the packages, or the command's.
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

// commandName takes the place of a package's name in the result of a command.
const commandName = "command"

// A testBinary is a compiled test of one package.
type testBinary struct {
	Package string // path within the module
	Dir     string // working directory
	File    string
	Run     string // -test.run, unless it is ""
}

// result is the machine's report on one package: a line of JSON on the second serial
// port. The last line has End and no package.
type result struct {
	Package string   `json:",omitempty"`
	Passed  int      // number of passed tests without subtests
	Skipped []string `json:",omitempty"`
	Failed  []string `json:",omitempty"`
	Took    time.Duration
	Error   string `json:",omitempty"` // why the binary did not exit with status 0
	End     bool   `json:",omitempty"`
}

func (r result) good() bool { return r.Error == "" && len(r.Failed) == 0 }

// results are all reports of a machine.
type results struct {
	of    map[string]result // by package
	ended bool              // the machine has sent its last line
	error string            // the error in the last line
}

// parseResults parses the output of the second serial port. It ignores invalid lines,
// such as the incomplete line of a machine that stopped during a write.
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
			fmt.Fprintf(table, "FAIL\t%s\tno result: the machine stopped before\n", name)
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
	_ = table.Flush() // writes to a strings.Builder do not fail
	switch {
	case r.error != "":
		fmt.Fprintf(&b, "the machine: %s\n", r.error)
	case !r.ended:
		fmt.Fprintln(&b, "the machine stopped before it had reported all results")
	}
	return b.String()
}

// A tally is a writer for the output of a test binary with -test.v. It adds the tests to res.
type tally struct {
	res  *result
	part []byte // the beginning of an incomplete line
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
	rest, ok := strings.CutPrefix(line, "--- ") // the line of a subtest is indented
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

// noCR is a writer that removes carriage returns from the output of a terminal.
type noCR struct{ w io.Writer }

func (n noCR) Write(b []byte) (int, error) {
	_, err := n.w.Write(bytes.ReplaceAll(b, []byte("\r"), nil))
	return len(b), err
}

// binaryName returns the file name for the test binary of a package. pkg is the path within
// the module.
func binaryName(pkg string) string {
	if pkg = path.Clean(pkg); pkg == "." {
		pkg = "root"
	}
	return strings.ReplaceAll(pkg, "/", "_") + ".test"
}
