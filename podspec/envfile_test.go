package podspec

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// filesOf reads from files by their whole paths.
func filesOf(files map[string]string) func(dir, path string) ([]byte, error) {
	return func(dir, path string) ([]byte, error) {
		content, ok := files[filepath.Join(dir, path)]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(content), nil
	}
}

func TestParseEnvFile(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		want          map[string]string
	}{
		{name: "empty"},
		{name: "blank lines and comments", content: "\n  \t\n# one\n  # A='x'\n\r\n"},
		{name: "one", content: "A='a'\n", want: map[string]string{"A": "a"}},
		{name: "without a line end", content: "A='a'", want: map[string]string{"A": "a"}},
		{name: "several", content: "A='a'\n\nB='b'\n# C='c'\nD='d'\n", want: map[string]string{"A": "a", "B": "b", "D": "d"}},
		{name: "blanks around", content: "\t A='a' \t\n", want: map[string]string{"A": "a"}},
		{name: "a comment after it", content: "A='a' # b\nB='b'\t#'\nC='c'\n", want: map[string]string{"A": "a", "B": "b", "C": "c"}},
		{name: "a comment after several lines", content: "A='a\nb' # c\nB='b'", want: map[string]string{"A": "a\nb", "B": "b"}},
		{name: "a comment without text", content: "A='a' #", want: map[string]string{"A": "a"}},
		{name: "a blank after the =", content: "A= 'a'\nB=\t\nC= # c\nD='d'", want: map[string]string{"A": "", "B": "", "C": "", "D": "d"}},
		{name: "lines of another system", content: "A='a'\r\nB='b'\r\n", want: map[string]string{"A": "a", "B": "b"}},
		{name: "an empty value", content: "A=''\n", want: map[string]string{"A": ""}},
		{name: "blanks in the value", content: "A='  a  '\n", want: map[string]string{"A": "  a  "}},
		{name: "nothing in it has a meaning", content: `A='$(B) \n "c" # d = e'`, want: map[string]string{"A": `$(B) \n "c" # d = e`}},
		{name: "several lines", content: "A='one\n# two\n\n  B='\nC='c'\n", want: map[string]string{"A": "one\n# two\n\n  B=", "C": "c"}},
		{name: "a line end alone", content: "A='\n'\n", want: map[string]string{"A": "\n"}},
		{name: "odd names", content: "1='a'\na b='b'\nit's='c'\n", want: map[string]string{"1": "a", "a b": "b", "it's": "c"}},
		{name: "the most", content: "A='" + strings.Repeat("x", 65536-4) + "'", want: map[string]string{"A": strings.Repeat("x", 65536-4)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseEnvFile([]byte(tc.content))
			if err != nil || !maps.Equal(got, tc.want) {
				t.Errorf("%q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

func TestParseEnvFileProblems(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"no =", "A='a'\n\nB\n", "line 3: want KEY='value', but there is no ="},
		{"no = in this line", "A\n='b'", "line 1: want KEY='value', but there is no ="},
		{"no name", "='a'", `line 1: the name before the = is invalid: environment variable name must be non-empty`},
		{"a name that is none", "größe='a'", `line 1: the name before the = is invalid: a valid environment variable name must consist only of printable ASCII`},
		{"a tab in a name", "A\tB='a'", `line 1: the name before the = is invalid: a valid environment variable name`},
		{"bare value", "A=a", "line 1: the value is not in single quotes"},
		{"no value", "A=\n'b'", "line 1: the value is not in single quotes"},
		{"double quotes", `A="a"`, "line 1: the value is not in single quotes"},
		{"export", "export A=a", "line 1: the value is not in single quotes"},
		{"open", "# x\nA='a\nB=b\n", "line 2: the quote of the value of A is not closed"},
		{"more after it", "A='a'b", "line 1: there is more after the value of A"},
		{"a comment without a blank before it", "A='a'#b", "line 1: there is more after the value of A"},
		{"a blank before the =", "A ='a'", "line 1: there is a blank before the ="},
		{"blanks around the =", "A = 'a'", "line 1: there is a blank before the ="},
		{"a tab before the =", "A\t='a'", "line 1: there is a blank before the ="},
		{"a bare value after a blank", "A= a", "line 1: the value is not in single quotes"},
		{"a line end of another system for a value", "A=\r\n", "line 1: the value is not in single quotes"},
		{"continued", "A='a' \\\n'b'", "line 1: there is more after the value of A"},
		{"zero byte", "A='\x00'", "line 1: the value of A has a zero byte"},
		{"not UTF-8", "A='\xff'", "line 1: the value of A is not UTF-8"},
		{"twice", "A='one\ntwo'\nB='b'\nA='x'", "line 4: A is set in line 1 already"},
		{"too large", strings.Repeat("#", 65537), "has 65537 bytes; want at most 65536"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseEnvFile([]byte(tc.content))
			if !strings.HasPrefix(text(err), tc.want) || got != nil {
				t.Errorf("%q, error %v; want %q", got, err, tc.want)
			}
		})
	}
}

// Writing the result in an unambiguous form and parsing it again must not change it.
func FuzzParseEnvFile(f *testing.F) {
	for _, s := range []string{"", "A='a'\n", "# c\n\n A = 'x\ny' \r\nB=''", "A=a", "A='", "='", "it's='a'", "A='a'B='b'", "A='a'\nA='b'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		vars, err := parseEnvFile([]byte(content))
		if err != nil {
			if vars != nil {
				t.Errorf("%q: variables %q beside the error %v", content, vars, err)
			}
			return
		}
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			if name == "" || strings.ContainsAny(name, "=\n") || strings.ContainsAny(vars[name], "'\x00") {
				t.Errorf("%q: %q is set to %q", content, name, vars[name])
			}
			b.WriteString(name + "='" + vars[name] + "'\n")
		}
		if b.Len() > maxEnvFile {
			return // the last line had no end
		}
		again, err := parseEnvFile([]byte(b.String()))
		if err != nil || !maps.Equal(again, vars) {
			t.Errorf("%q was read as %q, and as %q (%v) when written down", content, vars, again, err)
		}
	})
}

// fromFile is the spec of a container whose variable A comes from a file.
func fromFile(ref string) string {
	return container("env: [{name: A, valueFrom: {fileKeyRef: {" + ref + "}}}, {name: B, value: '[$(A)]'}]")
}

func withFiles(in Input) Input {
	in.Volumes = map[string]string{"vars": "/vol/vars"}
	in.ReadFile = filesOf(map[string]string{
		"/vol/vars/app.env": "KEY='value $(B)'\nEMPTY=''\n", "/vol/vars/sub/b..env": "1st='x'", "/vol/vars/bad.env": "KEY=value",
	})
	return in
}

func TestEnvFromFile(t *testing.T) {
	for _, tc := range []struct{ name, ref, want string }{
		{"a key", "volumeName: vars, path: app.env, key: KEY", "A=value $(B) B=[value $(B)]"}, // not expanded
		{"an empty value", "volumeName: vars, path: app.env, key: EMPTY", "A= B=[]"},
		{"below, with dots in a name", "volumeName: vars, path: ./sub/b..env, key: 1st", "A=x B=[x]"},
		{"no key, optional", "volumeName: vars, path: app.env, key: NONE, optional: true", "B=[$(A)]"},
		{"no file, optional", "volumeName: vars, path: none, key: KEY, optional: true", "B=[$(A)]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := variables(t, withFiles(input(t, fromFile(tc.ref)))); got != tc.want {
				t.Errorf("environment = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEnvFromFileProblems(t *testing.T) {
	const at = "spec.containers[0].env[0].valueFrom.fileKeyRef"
	for _, tc := range []struct{ name, ref, want string }{
		{"no volume", "volumeName: none, path: app.env, key: KEY", at + `.volumeName: volume "none" is not ready`},
		{"no volume, optional", "volumeName: none, path: app.env, key: KEY, optional: true", at + `.volumeName: volume "none" is not ready`},
		{"no file", "volumeName: vars, path: none, key: KEY", at + `.path: file "none" not found in volume "vars"`},
		{"no file, optional: false", "volumeName: vars, path: none, key: KEY, optional: false", at + `.path: file "none" not found in volume "vars"`},
		{"no key", "volumeName: vars, path: app.env, key: NONE", at + `.key: couldn't find key NONE in file "app.env" of volume "vars"`},
		{"bad file", "volumeName: vars, path: bad.env, key: KEY", at + `.path: file "bad.env" of volume "vars": line 1: the value is not in single quotes`},
		{"bad file, optional", "volumeName: vars, path: bad.env, key: KEY, optional: true", at + `.path: file "bad.env" of volume "vars": line 1: the value is not in single quotes`},
		{"absolute", "volumeName: vars, path: /etc/passwd, key: KEY", at + `.path: "/etc/passwd" must be a relative path without '..'`},
		{"upwards", "volumeName: vars, path: sub/../app.env, key: KEY", at + `.path: "sub/../app.env" must be a relative path without '..'`},
		{"no path, no key", "volumeName: vars", at + `.path: "" must be a relative path without '..'; ` + at + `.key: "": environment variable name must be non-empty`},
		{"a key that is none", "volumeName: vars, path: app.env, key: a=b", at + `.key: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := Container(withFiles(input(t, fromFile(tc.ref))), "app", ContainerOptions{})
			if text(err) != tc.want {
				t.Errorf("error = %q, want %q", text(err), tc.want)
			}
			var p Problems
			if !errors.As(err, &p) || p.Reason() != ReasonCreateContainerConfig {
				t.Errorf("reason = %q, want %q", p.Reason(), ReasonCreateContainerConfig)
			}
			if n := len(plan.Config.Envs); n != 1 {
				t.Errorf("%d variables beside the problem, want the one that has none", n)
			}
		})
	}
}

func TestEnvFileCannotBeRead(t *testing.T) {
	spec := fromFile("volumeName: vars, path: app.env, key: KEY, optional: true")
	in := withFiles(input(t, spec))
	in.ReadFile = nil
	if _, err := Container(in, "app", ContainerOptions{}); text(err) != "spec.containers[0].env[0].valueFrom.fileKeyRef: no reader of files in volumes is configured" {
		t.Errorf("nobody reads files: %v", err)
	}
	in.ReadFile = func(string, string) ([]byte, error) { return nil, errors.New("broken disk") }
	if _, err := Container(in, "app", ContainerOptions{}); !strings.HasSuffix(text(err), `.path: file "app.env" of volume "vars": broken disk`) {
		t.Errorf("a file that is there, and cannot be read: %v", err)
	}
}

// All variables are of one state of a file.
func TestEnvFileIsReadOnce(t *testing.T) {
	in := withFiles(input(t, container(`env: [
		{name: A, valueFrom: {fileKeyRef: {volumeName: vars, path: app.env, key: KEY}}},
		{name: B, valueFrom: {fileKeyRef: {volumeName: vars, path: ./app.env, key: KEY}}}]`)))
	read, files := 0, in.ReadFile
	in.ReadFile = func(dir, path string) ([]byte, error) {
		read++
		return files(dir, path)
	}
	if got, want := variables(t, in), "A=value $(B) B=value $(B)"; got != want || read != 1 {
		t.Errorf("environment = %q, read %d times; want %q, once", got, read, want)
	}
}
