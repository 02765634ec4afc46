package nodewright_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nodewright/nodewright/devicemgr/hostdevices"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/podmgr"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the generated parts of docs")

// A page is a document for people.
type page struct {
	path   string
	text   string
	prose  string // without fenced blocks
	blocks []block
}

// A block is a fenced block of a page.
type block struct{ kind, text string }

// pages are all documents but those of test data.
var pages = sync.OnceValues(func() (out []page, err error) {
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "build", "testdata", "tools"}, path):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p := page{path: path, text: string(b)}
		parts := strings.Split("\n"+p.text, "\n```")
		if len(parts)%2 == 0 {
			return fmt.Errorf("%s: a block has no end", path)
		}
		for i, part := range parts {
			kind, body, _ := strings.Cut(part, "\n")
			if i%2 == 0 {
				p.prose += part
			} else {
				p.blocks = append(p.blocks, block{kind, body + "\n"})
			}
		}
		out = append(out, p)
		return nil
	})
	return out, err
})

func allPages(t *testing.T) []page {
	t.Helper()
	out, err := pages()
	if err != nil || len(out) < 30 {
		t.Fatalf("%d documents, %v", len(out), err)
	}
	return out
}

var (
	code     = regexp.MustCompile("`([^`\n]+)`")
	link     = regexp.MustCompile(`\]\(([^):]*)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	option   = regexp.MustCompile(`^--?[a-z][a-z-]*`)
	makeCall = regexp.MustCompile(`^make (?:-C \S+ )?([a-z0-9-]+)`)
	testName = regexp.MustCompile(`^(?:Test|Fuzz)[A-Z]\w+$`)
	filePath = regexp.MustCompile(`^[a-z0-9_.]+(?:/[A-Za-z0-9_.-]+)+$`)
	ownFile  = regexp.MustCompile(`^ROOT_DIR/([A-Za-z0-9._-]+)`)
	figure   = regexp.MustCompile(`\d (?:MB|MiB|GB)\b`)
)

// TestDocuments checks what documents name: each check gets the pieces of inline code, and
// the commands of console blocks, and returns what is wrong.
func TestDocuments(t *testing.T) {
	var makefile []byte
	for _, name := range []string{"Makefile", "make/verify.mk"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		makefile = append(makefile, b...)
	}
	agent := agentCommands(t)
	top := map[string]bool{} // below the agent's root directory
	for _, r := range formatRows(t) {
		for _, c := range code.FindAllStringSubmatch(r.files, -1) {
			first, _, _ := strings.Cut(c[1], "/")
			top[first] = true
		}
	}
	tests := testFunctions(t)
	// Flags of other programs that text names.
	foreign := []string{"--target", "--runonce"}
	checks := []struct {
		what  string
		wrong func(code string) string
	}{
		{"agent's command", func(c string) string {
			if words := strings.Fields(c); len(words) > 1 && slices.Contains([]string{"agent", "nodewright-agent"}, filepath.Base(words[0])) {
				return agent.wrong(words[1:])
			}
			return ""
		}},
		{"flag", func(c string) string {
			if name := option.FindString(c); strings.HasPrefix(c, "--") && !agent.flags[name] && !slices.Contains(foreign, name) {
				return "no command of the agent has it"
			}
			return ""
		}},
		{"make target", func(c string) string {
			if m := makeCall.FindStringSubmatch(c); m != nil && !regexp.MustCompile(`(?m)^`+m[1]+`:`).Match(makefile) {
				return "it is not in the Makefile"
			}
			return ""
		}},
		{"test", func(c string) string {
			if testName.MatchString(c) && !tests[c] {
				return "there is no such function"
			}
			return ""
		}},
		{"path", func(c string) string {
			first, _, _ := strings.Cut(c, "/")
			if _, err := os.Stat(first); err != nil || !filePath.MatchString(c) || top[first] || first == "build" {
				return ""
			}
			if _, err := os.Stat(strings.TrimSuffix(c, ".")); err != nil {
				return "it is not in this repository"
			}
			return ""
		}},
		{"file of the agent", func(c string) string {
			if m := ownFile.FindStringSubmatch(c); m != nil && !top[m[1]] {
				return "docs/reference/formats.md does not have it"
			}
			return ""
		}},
	}
	for _, p := range allPages(t) {
		if p.path == "CHANGELOG.md" {
			continue // it says what was
		}
		var pieces []string
		for _, m := range code.FindAllStringSubmatch(p.prose, -1) {
			pieces = append(pieces, m[1])
		}
		for _, b := range p.blocks {
			switch {
			case b.kind == "console":
				for line := range strings.Lines(b.text) {
					if command, ok := strings.CutPrefix(strings.TrimLeft(line, "#$"), " "); ok && strings.IndexAny(line, "#$") == 0 {
						pieces = append(pieces, strings.TrimSpace(command))
					}
				}
			case !slices.Contains([]string{"go", "text", "yaml", "json", "toml", "ini", "mermaid"}, b.kind):
				t.Errorf("%s: a block of kind %q", p.path, b.kind)
			}
		}
		for _, c := range pieces {
			for _, check := range checks {
				switch {
				// Of other programs, and of the scripts of e2e/field.
				case check.what == "flag" && (strings.HasPrefix(p.path, "e2e/") || strings.HasPrefix(p.path, "examples/")),
					check.what == "agent's command" && strings.HasPrefix(p.path, "e2e/"):
					continue
				}
				if wrong := check.wrong(c); wrong != "" {
					t.Errorf("%s: %s %q: %s", p.path, check.what, c, wrong)
				}
			}
		}
		// Measured figures stand where they are measured.
		if m := figure.FindString(p.prose); m != "" && (p.path == "README.md" || strings.HasPrefix(p.path, "docs/start") || strings.HasPrefix(p.path, "docs/guides")) {
			t.Errorf("%s has a figure (%q): link to docs/reference/cost.md or weights.md", p.path, m)
		}
	}
}

// commandLine is what the agent's own help says.
type commandLine struct {
	commands map[string]map[string]bool // flags by command, with dashes
	flags    map[string]bool            // of all commands
	help     string                     // of all commands
}

// wrong says what is wrong with the words after "agent".
func (c commandLine) wrong(words []string) string {
	name := "run"
	if !strings.HasPrefix(words[0], "-") {
		name = words[0]
	} else if i := slices.IndexFunc(words, func(w string) bool { return c.commands[w] != nil }); i >= 0 {
		name = words[i] // agent --root-dir D get pods
	}
	flags := c.commands[name]
	if flags == nil {
		return "there is no such command"
	}
	for _, w := range words {
		if w == "--" || w == "|" || strings.HasPrefix(w, ">") {
			break
		}
		for _, f := range single(option.FindString(w)) {
			if !flags[f] && !slices.Contains([]string{"-h", "--help", "--version"}, f) {
				return "it has no flag " + f
			}
		}
	}
	return ""
}

// single returns the flags of a word: -it are two.
func single(word string) (flags []string) {
	if word == "" || strings.HasPrefix(word, "--") {
		return strings.Fields(word)
	}
	for _, letter := range word[1:] {
		flags = append(flags, "-"+string(letter))
	}
	return flags
}

// agentCommands asks the agent for its commands and their flags.
func agentCommands(t *testing.T) commandLine {
	t.Helper()
	program := testprogram.Build(t, "./examples/agent")
	said := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // ours
		cmd.Args[0] = "agent"                                     // as people have it
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("agent %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	c := commandLine{commands: map[string]map[string]bool{"help": {}}, flags: map[string]bool{}}
	var add func(under []string, help string)
	add = func(under []string, help string) {
		for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`).FindAllStringSubmatch(help, -1) {
			words := append(slices.Clone(under), m[1])
			help := said(append(words, "-h")...)
			c.help += "\n## agent " + strings.Join(words, " ") + "\n\n```text\n" + help + "```\n"
			if c.commands[words[0]] == nil {
				c.commands[words[0]] = map[string]bool{}
			}
			for _, f := range regexp.MustCompile(`(?m)(?:^ +|, )(--?[a-z][a-z-]*)`).FindAllStringSubmatch(help, -1) {
				c.commands[words[0]][f[1]], c.flags[f[1]] = true, true
			}
			if words[0] != "completion" { // by shell
				add(words, help)
			}
		}
	}
	add(nil, said("--help"))
	return c
}

// testFunctions are the names of all tests.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(b, -1) {
			out[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Links between documents lead to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	anchors := map[string][]string{}
	for _, p := range allPages(t) {
		for _, m := range heading.FindAllStringSubmatch(p.prose, -1) {
			name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
			anchors[p.path] = append(anchors[p.path], strings.ReplaceAll(name, " ", "-"))
		}
	}
	for _, p := range allPages(t) {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			target := p.path
			if file != "" {
				target = filepath.Join(filepath.Dir(p.path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: %v", p.path, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s: link to %s: there is no such heading, but %q", p.path, m[1], anchors[target])
			}
		}
	}
}

// Each row of the tables of bounds names a test that there is, but for inputs without a bound.
func TestSecurityNamesTests(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "build"}, path):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(b, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named, rows := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`"), 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 9 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Input") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(cells[8], -1)
		if bounds := strings.Trim(strings.Join(cells[2:7], ""), " -"); len(tests) == 0 && bounds != "" {
			t.Errorf("SECURITY.md: no test of %s", strings.TrimSpace(cells[0]))
		}
		for _, m := range tests {
			if !there[m[1]] {
				t.Errorf("SECURITY.md: there is no %s, the test of %s", m[1], strings.TrimSpace(cells[0]))
			}
		}
	}
	if rows < 30 {
		t.Errorf("found %d rows", rows)
	}
}

// The list of packages is complete.
func TestArchitectureNamesPackages(t *testing.T) {
	text, err := os.ReadFile("docs/design/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list(t) {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if path != "" && p.Name != "main" && len(p.GoFiles) > 0 && !strings.Contains(path, "testdata") && !strings.Contains(string(text), "`"+path+"`") {
			t.Errorf("docs/design/packages.md does not name %s", path)
		}
	}
}

// The parts of documents that are made of other things are up to date: make them anew with
// go test -run TestGenerated . -args -update-docs.
func TestGeneratedDocuments(t *testing.T) {
	var files strings.Builder
	section := ""
	for _, r := range formatRows(t) {
		if r.section != section {
			section = r.section
			fmt.Fprintf(&files, "\n### %s\n\n| file | delete | if it is lost |\n|---|---|---|\n", section)
		}
		fmt.Fprintf(&files, "| %s | %s | %s |\n", r.files, r.remove, r.lost)
	}
	for _, g := range []struct{ path, mark, text string }{
		{"docs/operate/files.md", "files", files.String()},
		{"docs/reference/flags.md", "flags", agentCommands(t).help},
	} {
		b, err := os.ReadFile(g.path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok1 := strings.Cut(string(b), "<!-- "+g.mark+":begin -->\n")
		is, after, ok2 := strings.Cut(rest, "\n<!-- "+g.mark+":end -->")
		if !ok1 || !ok2 {
			t.Fatalf("%s has no marks of %s", g.path, g.mark)
		}
		switch {
		case *updateDocs:
			writeFile(t, g.path, before+"<!-- "+g.mark+":begin -->\n"+g.text+"\n<!-- "+g.mark+":end -->"+after)
		case is != g.text:
			t.Errorf("%s is out of date: go test -run TestGenerated . -args -update-docs", g.path)
		}
	}
}

var packageClause = regexp.MustCompile(`(?m)^package (\w+)$`)

// Programs in documents are formatted and compile, and those with a block of output after them
// print it; manifests and configurations are valid. The programs are a module of their own with
// nothing but this one and what it requires.
func TestGuides(t *testing.T) {
	dir := guideModule(t)
	outputs := map[string]string{} // of programs, by directory
	programs := 0
	for _, p := range allPages(t) {
		base := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(p.path), ".md"), "-", "_")
		name, in := base, 0
		for i, b := range p.blocks {
			switch b.kind {
			case "go":
				m := packageClause.FindStringSubmatch(b.text)
				if m == nil {
					t.Errorf("%s: a block of Go without a package clause", p.path)
					continue
				}
				if formatted, err := format.Source([]byte(b.text)); err == nil && string(formatted) != b.text {
					t.Errorf("%s: the Go of package %s is not as gofmt writes it", p.path, m[1])
				}
				as := "guide.go"
				if strings.HasSuffix(m[1], "_test") {
					as = "guide_test.go"
				} else if in++; in > 1 {
					name = fmt.Sprint(base, in)
				}
				programs++
				writeFile(t, filepath.Join(dir, name, as), b.text)
				if m[1] == "main" && i+1 < len(p.blocks) && p.blocks[i+1].kind == "text" {
					outputs[name] = p.blocks[i+1].text
				}
			case "yaml":
				if err := validYAML(t, b.text); err != nil {
					t.Errorf("%s: %v", p.path, err)
				}
			}
		}
	}
	if programs < 10 {
		t.Errorf("found %d programs", programs)
	}
	// Offline, and compiled as other tests have it.
	t.Setenv("GOFLAGS", "-mod=mod -buildvcs=false")
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOWORK", "off")
	testprogram.Go(t, dir, "vet", "./...")
	testprogram.Go(t, dir, "test", "-vet=off", "./write_a_part", "./test")
	bin := filepath.Join(dir, "bin")
	testprogram.Go(t, dir, "build", "-ldflags=-w", "-o", bin+"/", "./...")
	for name, want := range outputs {
		got, err := exec.CommandContext(t.Context(), filepath.Join(bin, name)).Output() //nolint:gosec // a guide's
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, prints\n%s\nand says\n%s", name, err, got, want)
		}
	}
}

// validYAML reads what a document has as the agent does.
func validYAML(t *testing.T, text string) error {
	if strings.Contains(text, "kind: KubeletConfiguration\n") {
		flags := kubeletconfig.NewFlags()
		flags.ConfigFile, flags.Hostname = filepath.Join(t.TempDir(), "config.yaml"), "n"
		writeFile(t, flags.ConfigFile, text)
		// A build with the tag otlp uses tracing.
		_, warnings, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags, Used: []string{"tracing"}})
		if err == nil && len(warnings) > 0 {
			err = fmt.Errorf("warnings %q", warnings)
		}
		return err
	}
	if strings.HasPrefix(text, "devices:\n") {
		_, err := hostdevices.Parse([]byte(text))
		return err
	}
	if !strings.Contains(text, "kind: Pod\n") {
		return nil
	}
	decoded := podmgr.Decode("a block", []byte(text))
	pods, problems := decoded.Pods, decoded.Problems
	if len(problems) > 0 || len(pods) == 0 {
		return fmt.Errorf("%d pods, %v", len(pods), problems)
	}
	return nil
}

// guideModule makes a module that requires what this one does, at the same
// versions, and this one as it stands here.
func guideModule(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(mod), "module example.com/guides")
	writeFile(t, filepath.Join(dir, "go.mod"), text+"\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+here+"\n")
	writeFile(t, filepath.Join(dir, "go.sum"), string(sum))
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// omitted is "..." in place of something, and not of Go.
var omitted = regexp.MustCompile(`(?m)(^|[ \t{(,])\.\.\.($|[ })\],;])`)

// Go in comments of packages is Go, and what it names of our packages is there: functions,
// types, and fields of types.
func TestSnippetsOfComments(t *testing.T) {
	exported, members := map[string]map[string][]string{}, map[string]bool{}
	parsed := map[string]*ast.File{} // doc comments by file
	for _, p := range list(t) {
		names := map[string][]string{}
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil {
				parsed[filepath.Join(p.Dir, f)] = file
			}
			for _, d := range file.Decls {
				declared(d, names, members)
			}
		}
		if exported[p.Name] == nil {
			exported[p.Name] = map[string][]string{}
		}
		for n, fields := range names { // packages of one name count as one
			exported[p.Name][n] = append(exported[p.Name][n], fields...)
		}
	}
	snippets := 0
	for path, file := range parsed {
		for _, b := range new(comment.Parser).Parse(file.Doc.Text()).Content {
			c, ok := b.(*comment.Code)
			if !ok || !strings.Contains(c.Text, ":=") {
				continue
			}
			snippets++
			snippet, err := parseSnippet(c.Text)
			if err != nil {
				t.Errorf("%s: %v in\n%s", path, err, c.Text)
				continue
			}
			ast.Inspect(snippet, func(n ast.Node) bool {
				lit, _ := n.(*ast.CompositeLit)
				sel, ok := n.(*ast.SelectorExpr)
				if lit != nil {
					sel, ok = lit.Type.(*ast.SelectorExpr)
				}
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				if !ok || x.Obj != nil || exported[x.Name] == nil || x.Name == "main" {
					return true
				}
				fields, ok := exported[x.Name][sel.Sel.Name]
				if !ok && !members[sel.Sel.Name] { // a variable may have the name of a package
					t.Errorf("%s: there is no %s.%s", path, x.Name, sel.Sel.Name)
				}
				if lit == nil || len(fields) == 0 {
					return true
				}
				for _, e := range lit.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						if key, ok := kv.Key.(*ast.Ident); ok && !slices.Contains(fields, key.Name) {
							t.Errorf("%s: %s.%s has no field %s", path, x.Name, sel.Sel.Name, key.Name)
						}
					}
				}
				return true
			})
		}
	}
	if snippets < 20 {
		t.Errorf("found %d snippets", snippets)
	}
}

// parseSnippet parses statements or declarations.
func parseSnippet(text string) (file *ast.File, err error) {
	for _, placeholder := range []string{"${1}_$2", "${1}_,$2"} { // of a statement, of an element
		whole := omitted.ReplaceAllString(text, placeholder)
		for _, around := range []string{"package p\nfunc _() {\n%s\n}", "package p\n%s"} {
			f, ferr := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf(around, whole), 0)
			if ferr == nil {
				return f, nil
			}
			if err == nil {
				err = ferr
			}
		}
	}
	return nil, err
}

// declared adds the names that a declaration has with the fields of structs, and to members
// all fields and methods.
func declared(d ast.Decl, names map[string][]string, members map[string]bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[d.Name.Name] = nil
		} else {
			members[d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = nil
				}
			case *ast.TypeSpec:
				names[s.Name.Name] = nil
				st, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range st.Fields.List {
					for _, n := range f.Names {
						names[s.Name.Name], members[n.Name] = append(names[s.Name.Name], n.Name), true
					}
					if len(f.Names) == 0 { // embedded
						var last bytes.Buffer
						ast.Inspect(f.Type, func(n ast.Node) bool {
							if id, ok := n.(*ast.Ident); ok {
								last.Reset()
								last.WriteString(id.Name)
							}
							return true
						})
						names[s.Name.Name] = append(names[s.Name.Name], last.String())
					}
				}
			}
		}
	}
}
