package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// spec is a spec in Ginkgo's report.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	RunTime                 int64 // nanoseconds
	Failure                 struct{ Message string }
}

// readReport reads Ginkgo's JSON report.
func readReport(path string) ([]spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []spec
	for _, s := range suites {
		all = append(all, s.SpecReports...)
	}
	return all, nil
}

// tags matches the labels in a spec's name.
var tags = regexp.MustCompile(`\s*\[[^\]]*\]\s*`)

// external is the outermost name of all specs of an external storage driver.
const external = "External Storage"

// group returns the outermost name of a spec, without labels. For a spec of an external driver, it
// returns the next name, which is the name of the suite.
func (s spec) group() string {
	if len(s.ContainerHierarchyTexts) == 0 {
		return s.LeafNodeType
	}
	plain := func(i int) string { return strings.TrimSpace(tags.ReplaceAllString(s.ContainerHierarchyTexts[i], " ")) }
	if plain(0) == external && len(s.ContainerHierarchyTexts) > 1 {
		return plain(1)
	}
	return plain(0)
}

// name returns the complete name of a spec.
func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// ran reports whether a spec was selected to run. A spec that is excluded by its name or label
// counts as skipped, and has taken no time.
func (s spec) ran() bool {
	switch s.State {
	case "passed", "skipped":
		return s.LeafNodeType == "It" && s.RunTime > 0
	case "pending", "":
		return false
	}
	return true
}

// counts are the numbers in a line of the table.
type counts struct{ passed, failed, skipped int }

// printTable prints the results of the specs, and reports whether one failed.
func printTable(w io.Writer, specs []spec) bool {
	groups := map[string]*counts{}
	var total counts
	var failures []spec
	for _, s := range specs {
		if !s.ran() {
			continue
		}
		c := groups[s.group()]
		if c == nil {
			c = &counts{}
			groups[s.group()] = c
		}
		switch s.State {
		case "passed":
			c.passed++
			total.passed++
		case "skipped":
			c.skipped++
			total.skipped++
		default:
			c.failed++
			total.failed++
			failures = append(failures, s)
		}
	}
	slices.SortFunc(failures, func(a, b spec) int { return strings.Compare(a.name(), b.name()) })
	for _, f := range failures {
		fmt.Fprintf(w, "%s: %s\n    %s\n", strings.ToUpper(f.State), f.name(), strings.ReplaceAll(cut(f.Failure.Message, 1500), "\n", "\n    "))
	}
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "passed\tfailed\tskipped\t  \t")
	for _, name := range names {
		c := groups[name]
		fmt.Fprintf(table, "%d\t%d\t%d\t  \t%s\n", c.passed, c.failed, c.skipped, name)
	}
	fmt.Fprintf(table, "%d\t%d\t%d\t  \t%s\n", total.passed, total.failed, total.skipped, "all")
	_ = table.Flush()
	return total.failed > 0
}

func cut(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
