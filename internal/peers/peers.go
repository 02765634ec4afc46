// Package peers runs the tests of other projects against this repository's programs, and
// checks that every failure is known.
//
// The directory $PEERS contains checkouts: cri-o and bats-core for [CRI-O's tests], containerd
// for its integration tests. kubectl's tests come from the Kubernetes module that e2e requires.
// Helm 4, stern and the JavaScript client come from package registries. A suite whose files are
// missing is skipped, with the reason. `make peers` runs all suites.
//
// Each test of a peer that is known to fail has a line in verdicts.txt with the cause. The cause
// is "peer" if the test needs the peer's own files, options, texts or annotations, "environment" if
// this machine lacks something that the test needs, and "race" if the test has a race of its own. A
// failure without a line counts as a bug of this repository and fails the Go test. If a test with a
// line passes, the Go test fails, too, unless the cause is a race.
//
// [CRI-O's tests]: https://github.com/cri-o/cri-o/tree/main/test
package peers

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

//go:embed verdicts.txt
var verdictsText string

// Outcome is the result of a peer's test.
type Outcome string

// Outcomes of tests.
const (
	Passed  Outcome = "ok"
	Failed  Outcome = "not ok"
	Skipped Outcome = "skipped"
)

// A Result is the outcome of one test of a peer.
type Result struct {
	Test    string
	Outcome Outcome
}

// A Verdict is a line of verdicts.txt: the cause of a test's failure.
type Verdict struct {
	Suite, Test string
	Whose       string // the cause: peer, environment or race
	Why         string // an explanation
}

// Verdicts returns the lines of verdicts.txt.
func Verdicts() ([]Verdict, error) { return parseVerdicts(verdictsText) }

// parseVerdicts parses lines of the form SUITE | TEST | WHOSE | WHY. It ignores empty lines and
// lines that begin with #.
func parseVerdicts(text string) ([]Verdict, error) {
	var all []Verdict
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, " | ", 4)
		if len(f) != 4 || f[0] == "" || f[1] == "" || f[3] == "" || !slices.Contains([]string{"peer", "environment", "race"}, f[2]) {
			return nil, fmt.Errorf("verdicts.txt:%d: %q: want SUITE | TEST | peer, environment or race | WHY", n, line)
		}
		v := Verdict{f[0], f[1], f[2], f[3]}
		if slices.ContainsFunc(all, func(o Verdict) bool { return o.Suite == v.Suite && o.Test == v.Test }) {
			return nil, fmt.Errorf("verdicts.txt:%d: %s %q has two lines", n, v.Suite, v.Test)
		}
		all = append(all, v)
	}
	return all, nil
}

// Judge writes a line with the numbers of a suite's results to w. It returns messages about failures
// without a verdict, and about verdicts of tests that passed.
func Judge(w io.Writer, suite string, results []Result, verdicts []Verdict) (wrong []string) {
	count := map[string]int{}
	for _, r := range results {
		i := slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Suite == suite && v.Test == r.Test })
		switch {
		case r.Outcome == Failed && i < 0:
			count["ours"]++
			wrong = append(wrong, fmt.Sprintf("%s: %s: fails without a line in verdicts.txt", suite, r.Test))
		case r.Outcome == Failed:
			count[verdicts[i].Whose]++
		case r.Outcome == Passed && i >= 0 && verdicts[i].Whose != "race":
			wrong = append(wrong, fmt.Sprintf("%s: %s: passes; remove its line from verdicts.txt", suite, r.Test))
			fallthrough
		default:
			count[string(r.Outcome)]++
		}
	}
	fmt.Fprintf(w, "%-24s ran %d, passed %d, skipped %d; failed: ours %d, peer's %d, environment's %d\n",
		suite, len(results), count[string(Passed)], count[string(Skipped)], count["ours"], count["peer"]+count["race"], count["environment"])
	return wrong
}

var tapLine = regexp.MustCompile(`^(not )?ok \d+ (.*?)( # skip.*)?$`)

// ParseTAP returns the results in a stream of the Test Anything Protocol, as bats writes it.
func ParseTAP(r io.Reader) ([]Result, error) {
	var all []Result
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := tapLine.FindStringSubmatch(lines.Text())
		switch {
		case m == nil:
		case m[1] != "":
			all = append(all, Result{m[2], Failed})
		case m[3] != "":
			all = append(all, Result{m[2], Skipped})
		default:
			all = append(all, Result{m[2], Passed})
		}
	}
	return all, lines.Err()
}

var goLine = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) `)

// ParseGo returns the results of the top-level tests in the output of a Go test program
// with -test.v.
func ParseGo(r io.Reader) ([]Result, error) {
	var all []Result
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := goLine.FindStringSubmatch(lines.Text()); m != nil {
			all = append(all, Result{m[2], map[string]Outcome{"PASS": Passed, "FAIL": Failed, "SKIP": Skipped}[m[1]]})
		}
	}
	return all, lines.Err()
}
