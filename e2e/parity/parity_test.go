package parity_test

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/kubelet/config/v1beta1"
	_ "k8s.io/kubernetes/pkg/features" // registers the gates

	"github.com/nodewright/nodewright/kubeletconfig"
)

var update = flag.Bool("update", false, "write the list of gates anew")

// sources is the directory of a module.
func sources(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

func kubernetes(t *testing.T) string { return sources(t, "k8s.io/kubernetes") }

// missing compares what is not there with the list of what is known to be missing,
// and reports the counts.
func missing(t *testing.T, list string, all, absent []string) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", list))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	known := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, why, _ := strings.Cut(s.Text(), "#"); strings.TrimSpace(name) != "" {
			known[strings.TrimSpace(name)] = true
			if strings.TrimSpace(why) == "" {
				t.Errorf("%s: %s has no reason", list, name)
			}
		}
	}
	for _, name := range absent {
		if !known[name] {
			t.Errorf("%s: %s is not there", list, name)
		}
		delete(known, name)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		t.Errorf("%s: %s is there, or Kubernetes has it no more: take its line out", list, name)
	}
	t.Logf("%s: %d of %d are there", list, len(all)-len(absent), len(all))
	if len(all) < 10 {
		t.Errorf("%s: only %q were found in Kubernetes; the test reads it wrongly", list, all)
	}
}

// literals are the strings in the sources of nodewright, tests left out.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	root, out := sources(t, "github.com/nodewright/nodewright"), map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"e2e", "cmd", "sim", "tools", "build", ".git", "testdata", "differences"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil {
					out[s] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// found are the names that a pattern's groups find in files, each once.
func found(t *testing.T, pattern string, files ...string) (out []string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range re.FindAllStringSubmatch(string(b), -1) {
			for _, name := range m[1:] {
				if name != "" && !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func without(all []string, has func(string) bool) (absent []string) {
	return slices.DeleteFunc(slices.Clone(all), has)
}

func TestFlags(t *testing.T) {
	dir := filepath.Join(kubernetes(t), "cmd", "kubelet", "app", "options")
	all := found(t, `(?:Var|VarP|Var\[[^\]]*\])\([^"\n]*"([a-z0-9-]+)"|register\(global, local, "([a-z0-9-]+)"|registerDeprecated\(global, local, "([a-z0-9-]+)"`,
		filepath.Join(dir, "options.go"), filepath.Join(dir, "globalflags_linux.go"))
	all = append(all, "logging-format", "log-flush-frequency", "v", "vmodule")
	set := flag.NewFlagSet("", flag.ContinueOnError)
	kubeletconfig.NewFlags().Bind(set)
	if len(all) < 120 {
		t.Errorf("only %d flags were found", len(all))
	}
	missing(t, "flags", all, without(all, func(name string) bool { return set.Lookup(name) != nil }))
}

// A field is there if a file that sets it brings no warning.
func TestFields(t *testing.T) {
	var all []string
	typ := reflect.TypeFor[v1beta1.KubeletConfiguration]()
	for i := range typ.NumField() {
		if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); name != "" {
			all = append(all, name)
		}
	}
	absent := without(all, func(name string) bool { return hasEffect(t, name) })
	missing(t, "fields", all, absent)
}

// samples are values that some field takes. What stands beside it in beside makes
// one of them valid.
var (
	samples = []string{
		"true", "false", "1m", "/x", "x", "50", "1", "2", "[]", "{}", "none", "None", "'1'", "1Mi", "Watch", "Webhook", "127.0.0.1", "Strict",
		"[{gracePeriod: x}]", "cgroupfs", "container", "http://x/", "0.5", "NeverVerify", "{swapBehavior: NoSwap}", "[29]", "unix:///x", "hairpin-veth",
		"VersionTLS12", "1.35", "1h", "50ms", "{net.core.somaxconn: '1'}",
	}
	beside = map[string]string{
		"defaultPodSysctls": "featureGates: {DefaultPodSysctls: true}",
		"tlsCertFile":       "tlsPrivateKeyFile: /k", "tlsPrivateKeyFile": "tlsCertFile: /c", "shutdownGracePeriodCriticalPods": "shutdownGracePeriod: 10m",
		"maxParallelImagePulls": "serializeImagePulls: false", "preloadedImagesVerificationAllowlist": "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages",
		"systemCgroups": "cgroupRoot: /", "imageGCHighThresholdPercent": "imageGCLowThresholdPercent: 0", "imageGCLowThresholdPercent": "imageGCHighThresholdPercent: 99",
	}
)

func hasEffect(t *testing.T, field string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "k.yaml")
	var last error
	for _, value := range samples {
		text := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n%s: %s\n%s\n", field, value, beside[field])
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := kubeletconfig.Load(kubeletconfig.Options{File: file})
		if err != nil {
			last = err
			continue
		}
		return !slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, field+" is not supported") })
	}
	t.Errorf("no sample is valid for %s: %v", field, last)
	return true
}

func TestGates(t *testing.T) {
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		t.Log(err) // another package of this program has added them
	}
	c, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]kubeletconfig.Gate{}
	for _, g := range c.Gates() {
		ours[g.Name] = g
	}
	if *update {
		writeGates(t)
		t.Skip("kubeletconfig/knowngates.go is written anew; run the test again without -update")
	}
	var all, absent, other []string
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		all = append(all, string(name))
		g, known := ours[string(name)]
		switch {
		case !known || g.Stage != string(spec.PreRelease):
			absent = append(absent, string(name))
		case g.Enabled != spec.Default:
			other = append(other, string(name))
		}
		delete(ours, string(name))
	}
	for name := range ours {
		t.Errorf("Kubernetes has no gate %s", name)
	}
	missing(t, "gates-unknown", all, absent)
	missing(t, "gates-otherwise", all, other)
}

// writeGates makes the list of gates of kubeletconfig of those of this release.
func writeGates(t *testing.T) {
	t.Helper()
	asked := map[string]bool{}
	declared := filepath.Join(sources(t, "k8s.io/component-helpers"), "nodedeclaredfeatures") // the kubelet asks for their gates by these names
	dirs := []string{declared}
	for _, dir := range []string{"cmd/kubelet", "pkg/kubelet", "pkg/volume", "pkg/probe"} {
		dirs = append(dirs, filepath.Join(kubernetes(t), dir))
	}
	for _, dir := range dirs {
		var files []string
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		pattern := `eatures\.([A-Z]\w+)`
		if dir == declared {
			pattern = `= "([A-Z]\w+)"`
		}
		for _, name := range found(t, pattern, files...) {
			asked[name] = true
		}
	}
	gates := utilfeature.DefaultMutableFeatureGate.GetAll()
	var b strings.Builder
	v := version.DefaultKubeBinaryVersion
	fmt.Fprintf(&b, "package kubeletconfig\n\n// knownGates are the feature gates that a kubelet of Kubernetes %s knows: those of\n"+
		"// pkg/features and of what it is made of. The test of parity in e2e compares them\n// with that release, and makes this list with -update.\nvar knownGates = []knownGate{\n", v)
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		var is []string
		for _, f := range []struct {
			set  bool
			name string
		}{{gates[name].Default, "isOn"}, {gates[name].LockToDefault, "isLocked"}, {asked[string(name)], "ofKubelet"}} {
			if f.set {
				is = append(is, f.name)
			}
		}
		fmt.Fprintf(&b, "\t{%q, %q, %s},\n", name, string(gates[name].PreRelease), cmp.Or(strings.Join(is, " | "), "0"))
	}
	b.WriteString("}\n")
	file := filepath.Join(sources(t, "github.com/nodewright/nodewright"), "kubeletconfig", "knowngates.go")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	all := metricNames(t)
	words := literals(t)
	absent := without(all, func(name string) bool { return words[name] || composed(words, name, 3) })
	missing(t, "metrics", all, absent)
}

// composed reports whether a name is put together of at most so many literals, of
// which the first has ten letters and ends in an underscore.
func composed(words map[string]bool, name string, most int) bool {
	var rest func(string, int) bool
	rest = func(s string, most int) bool {
		if words[s] {
			return true
		}
		for i := 1; most > 1 && i < len(s); i++ {
			if words[s[:i]] && rest(s[i:], most-1) {
				return true
			}
		}
		return false
	}
	for i := 10; i < len(name); i++ {
		if name[i-1] == '_' && words[name[:i]] && rest(name[i:], most-1) {
			return true
		}
	}
	return false
}

func TestEvents(t *testing.T) {
	all := found(t, `=\s+"([A-Za-z]+)"`, filepath.Join(kubernetes(t), "pkg", "kubelet", "events", "event.go"))
	words := literals(t)
	missing(t, "events", all, without(all, func(name string) bool {
		return words[name] || words["Resize"] && slices.Contains([]string{"ResizeDeferred", "ResizeInfeasible"}, name) // as the pod's condition
	}))
}

func TestEndpoints(t *testing.T) {
	all := found(t, `(?:Path|Handle)\(\s*"(/[A-Za-z/]+)|= "(/[a-z][A-Za-z/]*)/?"`, filepath.Join(kubernetes(t), "pkg", "kubelet", "server", "server.go"))
	for i := range all {
		all[i] = strings.TrimSuffix(all[i], "/")
	}
	slices.Sort(all)
	all = slices.Compact(all)
	words := literals(t)
	missing(t, "endpoints", all, without(all, func(path string) bool {
		for w := range words {
			if w == path || strings.HasPrefix(w, path+"/") || strings.HasPrefix(w, path+"?") {
				return true
			}
		}
		return false
	}))
}
