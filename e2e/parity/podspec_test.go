package parity_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// places are where the sources of nodewright, and of a library that it calls, name a field, as x.Field or Field: in a
// literal, by its name: the first place for each.
func places(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, module := range []string{"github.com/nodewright/nodewright", "k8s.io/csi-translation-lib"} { // the library reads sources of volumes
		namesOf(t, sources(t, module), out)
	}
	return out
}

// namesOf adds the names that the sources below root use to out, each with a file.
func namesOf(t *testing.T, root string, out map[string]string) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"e2e", "cmd", "sim", "podtext", "examples", "tools", "build", ".git", "testdata"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"),
			strings.HasPrefix(d.Name(), "validate_"): // a field that is only checked has no effect
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name := func(id *ast.Ident) {
			if _, known := out[id.Name]; !known {
				p := set.Position(id.Pos())
				rel, _ := filepath.Rel(root, p.Filename)
				out[id.Name] = rel
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				name(n.Sel)
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok {
					name(id)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// podFields are the fields that a PodSpec reaches, as Struct.Field.
func podFields() (out []string) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if typ.PkgPath() != "k8s.io/api/core/v1" || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.Anonymous {
				out = append(out, typ.Name()+"."+f.Name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[v1.PodSpec]())
	slices.Sort(out)
	return out
}

// A field is there if the sources name it; a struct none of whose users is there does
// not count through a field of the same name in another one.
func TestPodSpec(t *testing.T) {
	where, all := places(t), podFields()
	if len(all) < 400 {
		t.Errorf("only %d fields were found", len(all))
	}
	var absent []string
	for _, name := range all {
		structure, field, _ := strings.Cut(name, ".")
		if _, ok := where[field]; !ok || slices.Contains(unread, structure) {
			absent = append(absent, name)
			continue
		}
		if testing.Verbose() {
			t.Logf("%s: %s", name, where[field])
		}
	}
	missing(t, "podspec", all, absent)
}

// unread are structs that no node reads: all their fields are in the list, though
// others have the same names.
var unread = []string{
	"GitRepoVolumeSource", "GlusterfsVolumeSource", "RBDVolumeSource", "CephFSVolumeSource", "FlockerVolumeSource", "QuobyteVolumeSource",
	"PhotonPersistentDiskVolumeSource", "ScaleIOVolumeSource", "StorageOSVolumeSource", "FlexVolumeSource", "WindowsSecurityContextOptions",
	"PreferredSchedulingTerm", "PodAffinity", "PodAntiAffinity", "PodAffinityTerm", "WeightedPodAffinityTerm", "TopologySpreadConstraint", "PodSchedulingGate", "PodSchedulingGroup",
}

// Admission says no in the kubelet's words.
func TestAdmission(t *testing.T) {
	kubelet := filepath.Join(kubernetes(t), "pkg", "kubelet")
	in := func(path ...string) string { return filepath.Join(append([]string{kubelet}, path...)...) }
	const constant = `(?m)^\s+[A-Z]\w*\s+= "([A-Za-z-]+)"`
	all := slices.Concat(
		found(t, constant, in("lifecycle", "predicate.go")),
		found(t, `(?m)(?:Reason|Unsupported)\s+= "([A-Za-z]+)"`, in("lifecycle", "handlers.go"), in("sysctl", "allowlist.go"), in("cm", "admission", "errors.go")),
		found(t, `NodeShutdownNotAdmittedReason\s+= "([A-Za-z]+)"`, in("nodeshutdown", "nodeshutdown_manager.go")),
		found(t, `(?m)^\s+(?:Reason|ErrorTopologyAffinity|ErrorSMTAlignment)\s+= "([A-Za-z]+)"`,
			in("eviction", "helpers.go"), in("cm", "topologymanager", "topology_manager.go"), in("cm", "cpumanager", "policy_static.go")),
		found(t, `(?m)^\s+(?:NodeAffinity|NodeName|NodePorts|TaintToleration)\s+= "([A-Za-z]+)"`,
			filepath.Join(kubernetes(t), "pkg", "scheduler", "framework", "plugins", "names", "names.go")),
	)
	slices.Sort(all)
	all = slices.Compact(all)
	words := literals(t)
	missing(t, "admission", all, without(all, func(reason string) bool {
		resource, lacks := strings.CutPrefix(reason, "OutOf")
		return words[reason] || lacks && resource != "" && words["OutOf"]
	}))
}
