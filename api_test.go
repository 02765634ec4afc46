package nodewright_test

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/apilist"
)

var updateAPI = flag.Bool("update-api", false, "rewrite api/next.txt with what stable packages export")

// importable reports whether others may import the package.
func (p *pkg) importable() bool {
	name, ours := topPackage(p.ImportPath)
	return ours && name != "" && p.Name != "main" && !strings.Contains(p.ImportPath+"/", "/internal/") && len(p.GoFiles) > 0
}

// tierLine is how a package comment ends.
var tierLine = regexp.MustCompile(`(?m)^Tier: (stable|beta|kit|internal soon)\.$`)

// tier is that of the package's comment; "" if it says none.
func (p *pkg) tier(t *testing.T) (tier string) {
	t.Helper()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if m := tierLine.FindStringSubmatch(f.Doc.Text()); m != nil {
			tier = m[1]
		}
	}
	return tier
}

// The API of stable packages is what api/next.txt has. What the last release had and is
// gone has a word on its package in the changelog.
func TestAPI(t *testing.T) {
	var now []string
	for _, p := range list(t) {
		if !p.importable() || p.tier(t) != "stable" {
			continue
		}
		lines, err := apilist.Package(strings.TrimPrefix(p.ImportPath, module+"/"), p.Dir, p.GoFiles)
		if err != nil {
			t.Fatal(err)
		}
		now = append(now, lines...)
	}
	slices.Sort(now)
	next := filepath.Join("api", "next.txt")
	if *updateAPI {
		if err := os.WriteFile(next, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range missing(now, apiFile(t, next)) {
		t.Errorf("not in api/next.txt (make api): %s", l)
	}
	for _, l := range missing(apiFile(t, next), now) {
		t.Errorf("in api/next.txt alone (make api): %s", l)
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, unreleased, _ := strings.Cut(string(changelog), "## Unreleased")
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	for _, l := range missing(lastRelease(t), now) {
		path, _, _ := strings.Cut(strings.TrimPrefix(l, "pkg "), ",")
		if !strings.Contains(unreleased, "`"+path+"`") {
			t.Errorf("gone since the last release without a word on `%s` in CHANGELOG.md: %s", path, l)
		}
	}
}

// missing are the lines, of those in order, that others have not, at most 30.
func missing(lines, others []string) (out []string) {
	for _, l := range lines {
		if _, found := slices.BinarySearch(others, l); !found && len(out) < 30 {
			out = append(out, l)
		}
	}
	return out
}

// apiFile returns the lines of a file of the directory api, in order.
func apiFile(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(string(b)), "\n")))
}

// lastRelease is the API of the newest api/vX.Y.Z.txt; none before the first release.
func lastRelease(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("api", "v*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	var newest [3]int
	for _, path := range paths {
		var v [3]int
		if _, err := fmt.Sscanf(filepath.Base(path), "v%d.%d.%d.txt", &v[0], &v[1], &v[2]); err != nil {
			t.Fatalf("%s: %v; want a name such as v1.2.3.txt", path, err)
		}
		if slices.Compare(v[:], newest[:]) > 0 {
			newest, lines = v, apiFile(t, path)
		}
	}
	return lines
}

// Packages that comments and documents name are there.
func TestNamedPackages(t *testing.T) {
	known, top := map[string]bool{}, map[string]bool{}
	var files []string
	for _, p := range allPages(t) {
		files = append(files, p.path)
	}
	for _, p := range list(t) {
		known[strings.TrimPrefix(p.ImportPath, module+"/")] = true
		name, _ := topPackage(p.ImportPath)
		top[name] = true
		for _, f := range p.GoFiles {
			files = append(files, filepath.Join(p.Dir, f))
		}
	}
	named := regexp.MustCompile("(?:[Pp]ackages? |and |, |`)([a-z0-9]+(?:/[a-z0-9]+)+)([^a-zA-Z0-9_./-]|[.]?$)")
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), "\n// ", " ") // names may be broken over lines
		for line := range strings.Lines(text) {
			if _, comment, found := strings.Cut(line, "//"); strings.HasSuffix(path, ".go") {
				if !found {
					continue
				}
				line = comment
			}
			for _, m := range named.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
				first, _, _ := strings.Cut(m[1], "/")
				if _, err := os.Stat(m[1]); top[first] && !known[m[1]] && err != nil {
					t.Errorf("%s names %s, and there is no such package", path, m[1])
				}
			}
		}
	}
}

// The tier of each package is in its comment, as docs/reference/compatibility.md has it.
func TestTiers(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("docs", "reference", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	tiers := map[string]string{}
	row := regexp.MustCompile(`(?m)^\| (stable|beta|kits|internal soon) \|.*\| (.*) \|$`)
	for _, m := range row.FindAllStringSubmatch(string(document), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[2], -1) {
			tiers[name[1]] = strings.TrimSuffix(m[1], "s")
		}
	}
	for _, p := range list(t) {
		if !p.importable() {
			continue
		}
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		want := tiers[path]
		if want == "" {
			want = "beta"
		}
		delete(tiers, path)
		said := p.tier(t)
		if said != want {
			t.Errorf("the comment of package %s says tier %q; docs/reference/compatibility.md %q (the last line is to be \"Tier: %s.\")", path, said, want, want)
		}
	}
	for path, tier := range tiers {
		t.Errorf("docs/reference/compatibility.md has %s as %s, and there is no such package", path, tier)
	}
}
