package nodewright_test

import (
	"flag"
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

var updateAPI = flag.Bool("update-api", false, "rewrite api/next.txt with what was added since the last release")

// embedded are packages whose types importable ones embed, with all their methods.
var embedded = []string{module + "/agent/internal/query"}

// importable reports whether others may import the package.
func (p *pkg) importable() bool {
	name, ours := room(p.ImportPath)
	return ours && name != "" && p.Name != "main" && !strings.Contains(p.ImportPath+"/", "/internal/") && len(p.GoFiles) > 0
}

// apiFile returns the lines of files of the directory api, without comments.
func apiFile(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join("api", pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines[line] = true
			}
		}
	}
	return lines
}

// What is exported is what the files of the directory api have, so that nothing is added
// unseen, and nothing that a release had is lost without a word in the changelog.
func TestAPI(t *testing.T) {
	now := map[string]bool{}
	for _, p := range list(t) {
		if !p.importable() && !slices.Contains(embedded, p.ImportPath) {
			continue
		}
		lines, err := apilist.Package(strings.TrimPrefix(p.ImportPath, module+"/"), p.Dir, p.GoFiles)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			now[l] = true
		}
	}
	released, removed, next := apiFile(t, "v*.txt"), apiFile(t, "removed.txt"), apiFile(t, "next.txt")
	if *updateAPI {
		var added []string
		for l := range now {
			if !released[l] {
				added = append(added, l)
			}
		}
		slices.Sort(added)
		if err := os.WriteFile(filepath.Join("api", "next.txt"), []byte(strings.Join(added, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		next = apiFile(t, "next.txt")
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, unreleased, _ := strings.Cut(string(changelog), "## Unreleased")
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	var wrong []string
	for l := range now {
		if !released[l] && !next[l] {
			wrong = append(wrong, "added, and not in api/next.txt (make api): "+l)
		}
		if removed[l] {
			wrong = append(wrong, "there, though api/removed.txt has it: "+l)
		}
	}
	for l := range next {
		if !now[l] {
			wrong = append(wrong, "gone, and still in api/next.txt (make api): "+l)
		}
	}
	for l := range released {
		if now[l] {
			continue
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(l, "pkg "), ",")
		if !removed[l] {
			wrong = append(wrong, "gone since a release; take it back, or put it into api/removed.txt and CHANGELOG.md: "+l)
		} else if !strings.Contains(unreleased, path) {
			wrong = append(wrong, "removed without a word on "+path+" in CHANGELOG.md: "+l)
		}
	}
	slices.Sort(wrong)
	for i, w := range wrong {
		if i == 30 {
			t.Errorf("and %d more", len(wrong)-i)
			break
		}
		t.Error(w)
	}
}

// Packages that comments and documents name are there.
func TestNamedPackages(t *testing.T) {
	known, rooms := map[string]bool{}, map[string]bool{}
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, documents...)
	for _, p := range list(t) {
		known[strings.TrimPrefix(p.ImportPath, module+"/")] = true
		name, _ := room(p.ImportPath)
		rooms[name] = true
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
		for line := range strings.Lines(string(b)) {
			if _, comment, found := strings.Cut(line, "//"); strings.HasSuffix(path, ".go") {
				if !found {
					continue
				}
				line = comment
			}
			for _, m := range named.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
				first, _, _ := strings.Cut(m[1], "/")
				if _, err := os.Stat(m[1]); rooms[first] && !known[m[1]] && err != nil {
					t.Errorf("%s names %s, and there is no such package", path, m[1])
				}
			}
		}
	}
}

// tierLine is how a package comment ends.
var tierLine = regexp.MustCompile(`(?m)^Tier: (stable|beta|kit|internal soon)\.$`)

// The tier of each package is in its comment, as docs/compatibility.md has it.
func TestTiers(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("docs", "compatibility.md"))
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
		said := ""
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if m := tierLine.FindStringSubmatch(f.Doc.Text()); m != nil {
				said = m[1]
			}
		}
		if said != want {
			t.Errorf("the comment of package %s says tier %q; docs/compatibility.md %q (the last line is to be \"Tier: %s.\")", path, said, want, want)
		}
	}
	for path, tier := range tiers {
		t.Errorf("docs/compatibility.md has %s as %s, and there is no such package", path, tier)
	}
}
