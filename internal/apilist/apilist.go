// Package apilist lists what a package exports, a line for each name, so that a change of
// an interface is a change of lines in a file that reviewers see.
//
// It reads syntax alone: two types of one name in different packages look alike, and what
// an embedded type brings stands under that type. Names of parameters are left out, as
// nobody depends on them.
package apilist

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Package lists what the files of a directory export, in order, each line beginning with
// the package's path.
func Package(path, dir string, files []string) ([]string, error) {
	l := &lister{prefix: "pkg " + path + ", ", fset: token.NewFileSet()}
	var parsed []*ast.File
	for _, name := range files {
		f, err := parser.ParseFile(l.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	for _, f := range parsed {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				l.general(d)
			case *ast.FuncDecl:
				l.function(d)
			}
		}
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines), nil
}

type lister struct {
	prefix string
	fset   *token.FileSet
	lines  []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, l.prefix+fmt.Sprintf(format, args...))
}

func (l *lister) general(d *ast.GenDecl) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				l.typed(s)
			}
		case *ast.ValueSpec:
			for i, n := range s.Names {
				if n.IsExported() {
					l.value(d.Tok, n, s, i)
				}
			}
		}
	}
}

// value lists a constant, with its value if that is written beside it, or a variable.
func (l *lister) value(tok token.Token, name *ast.Ident, s *ast.ValueSpec, i int) {
	line := tok.String() + " " + name.Name
	if s.Type != nil {
		line += " " + l.text(s.Type)
	}
	if tok == token.CONST && i < len(s.Values) {
		line += " = " + l.text(s.Values[i])
	}
	l.add("%s", line)
}

func (l *lister) function(d *ast.FuncDecl) {
	if !d.Name.IsExported() {
		return
	}
	if d.Recv == nil {
		l.add("func %s%s", d.Name.Name, l.signature(d.Type))
		return
	}
	on := l.text(d.Recv.List[0].Type)
	if base, _, _ := strings.Cut(strings.TrimPrefix(on, "*"), "["); ast.IsExported(base) {
		l.add("method (%s) %s%s", on, d.Name.Name, l.signature(d.Type))
	}
}

func (l *lister) typed(s *ast.TypeSpec) {
	name := s.Name.Name
	if s.TypeParams != nil {
		name += "[" + l.fields(s.TypeParams, true) + "]"
	}
	if s.Assign.IsValid() {
		l.add("type %s = %s", name, l.text(s.Type))
		return
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		l.add("type %s struct", name)
		for _, f := range t.Fields.List {
			l.field(name, f)
		}
	case *ast.InterfaceType:
		l.add("type %s interface", name)
		for _, m := range t.Methods.List {
			l.member(name, m)
		}
	default:
		l.add("type %s %s", name, l.text(s.Type))
	}
}

func (l *lister) field(of string, f *ast.Field) {
	if len(f.Names) == 0 {
		l.add("type %s struct, embedded %s", of, l.text(f.Type))
	}
	for _, n := range f.Names {
		if n.IsExported() {
			l.add("type %s struct, %s %s", of, n.Name, l.text(f.Type))
		}
	}
}

// member lists a method of an interface, or what it embeds. Methods that are not exported
// are listed as one: nobody else can have them.
func (l *lister) member(of string, m *ast.Field) {
	if len(m.Names) == 0 {
		l.add("type %s interface, embedded %s", of, l.text(m.Type))
		return
	}
	if f, ok := m.Type.(*ast.FuncType); ok && m.Names[0].IsExported() {
		l.add("type %s interface, %s%s", of, m.Names[0].Name, l.signature(f))
	} else {
		l.add("type %s interface, unexported methods", of)
	}
}

// signature is a function's type without names.
func (l *lister) signature(t *ast.FuncType) string {
	params := ""
	if t.TypeParams != nil {
		params = "[" + l.fields(t.TypeParams, true) + "]"
	}
	results := ""
	if t.Results != nil {
		if results = l.fields(t.Results, false); strings.Contains(results, ", ") || strings.HasPrefix(results, "func") {
			results = "(" + results + ")"
		}
		results = " " + results
	}
	return params + "(" + l.fields(t.Params, false) + ")" + results
}

func (l *lister) fields(list *ast.FieldList, named bool) string {
	var out []string
	for _, f := range list.List {
		text := l.text(f.Type)
		for i := range max(len(f.Names), 1) {
			if named {
				out = append(out, f.Names[i].Name+" "+text)
			} else {
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, ", ")
}

// text is an expression in one line; functions in it are without names as well.
func (l *lister) text(e ast.Expr) string {
	if f, ok := e.(*ast.FuncType); ok {
		return "func" + l.signature(f)
	}
	var b bytes.Buffer
	if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&b, l.fset, e); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
