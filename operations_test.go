package nodewright_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile(`\b(?:kubelet|nodewright|container|node|pod|volume|storage|dra|csi|plugin|kubernetes|rest_client)_[a-z0-9_]+\b`)

// Every metric of the dashboard and of the alerts exists.
func TestMetricsOfDocuments(t *testing.T) {
	literals := stringLiterals(t)
	exists := func(name string) bool {
		for _, end := range []string{"", "_bucket", "_sum", "_count"} {
			base := strings.TrimSuffix(name, end)
			if literals[base] {
				return true
			}
			for i := range base { // of a prefix and the rest
				if base[i] == '_' && literals[base[:i+1]] && literals[base[i+1:]] {
					return true
				}
			}
		}
		return false
	}
	raw, err := os.ReadFile("docs/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	expressions := map[string]string{} // to where they stand
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expressions[target.Expr] = "panel " + p.Title
		}
	}
	text, err := os.ReadFile("docs/operate/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[2], "`") {
			expressions[cells[2]] = "alert" + cells[1]
		}
	}
	if len(expressions) < 30 {
		t.Fatalf("found %d expressions", len(expressions))
	}
	for expr, where := range expressions {
		for _, name := range metricName.FindAllString(regexp.MustCompile(`\{[^}]*\}|by \([^)]*\)`).ReplaceAllString(expr, ""), -1) {
			if !exists(name) {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
}

// stringLiterals are those of all files that are not tests.
func stringLiterals(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, p := range list(t) {
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil {
						out[s] = true
					}
				}
				return true
			})
		}
	}
	return out
}
