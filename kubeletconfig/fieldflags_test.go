package kubeletconfig

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every flag of the kubelet is taken, but for those that the agent must not seem
// to obey.
func TestEveryFlagOfTheKubeletIsTaken(t *testing.T) {
	raw, err := os.ReadFile("testdata/kubelet-flags")
	if err != nil {
		t.Fatal(err)
	}
	refused := []string{
		"help", "version", // the program's
		"runonce", // it would run for ever
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	NewFlags().Bind(fs)
	for name := range strings.Lines(string(raw)) {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "#") {
			continue
		}
		if taken := fs.Lookup(name) != nil; taken == slices.Contains(refused, name) {
			t.Errorf("--%s is taken: %t", name, taken)
		}
	}
}

// Each flag sets its field, and nothing else.
func TestFieldFlags(t *testing.T) {
	values := map[string]struct {
		text string
		want any
	}{
		aTruth.hint: {"false", false}, aPeriod.hint: {"90s", "1m30s"}, aList.hint: {"a, b,", []any{"a", "b"}},
		aFile.hint: {"/f", "/f"}, aWord.hint: {"w", "w"}, aSize.hint: {"8Ki", "8Ki"}, aCount.hint: {"7", 7.0},
		theValues.hint: {"x=1,y=2", map[string]any{"x": "1", "y": "2"}},
		theGates.hint:  {"Some=true", map[string]any{"Some": true}},
		theHeads.hint:  {"a:1,a:2,b:3", map[string]any{"a": []any{"1", "2"}, "b": []any{"3"}}},
		theTaints.hint: {"k=v:NoSchedule,l:NoExecute", []any{
			map[string]any{"key": "k", "value": "v", "effect": "NoSchedule"}, map[string]any{"key": "l", "effect": "NoExecute"},
		}},
		theModules.hint: {"a=4,b*=0", []any{map[string]any{"filePattern": "a", "verbosity": 4.0}, map[string]any{"filePattern": "b*", "verbosity": 0.0}}},
		theMemory.hint: {"0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi", []any{
			map[string]any{"numaNode": 0.0, "limits": map[string]any{"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
			map[string]any{"numaNode": 1.0, "limits": map[string]any{"memory": "2Gi"}},
		}},
	}
	for _, l := range fieldFlags {
		t.Run(l.name, func(t *testing.T) {
			v, ok := values[l.kind.hint]
			if !ok {
				t.Fatalf("no value for %s", l.kind.hint)
			}
			want := v.want
			if want == false { // the field may be left out when it is false
				v.text, want = "true", true
			}
			f := parse(t, "--"+l.name+"="+v.text)
			c := loaded(t)
			before := document(t, c)
			if err := f.layFields(&c.KubeletConfiguration); err != nil {
				t.Fatal(err)
			}
			after := document(t, c)
			if got := at(after, l.path); !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %#v, want %#v", l.path, got, want)
			}
			put(after, l.path, at(before, l.path))
			if !reflect.DeepEqual(before, after) {
				t.Errorf("other fields changed: %v, were %v", after, before)
			}
		})
	}
}

func loaded(t *testing.T) *Config {
	t.Helper()
	c, _, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func document(t *testing.T, c *Config) map[string]any {
	t.Helper()
	raw, err := json.Marshal(&c.KubeletConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, string(raw)).(map[string]any)
}

func at(doc any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, _ := doc.(map[string]any)
		doc = m[name]
	}
	return doc
}

// put sets a field, or removes it if v is nil.
func put(doc map[string]any, path string, v any) {
	top, rest, deeper := strings.Cut(path, ".")
	switch {
	case deeper:
		put(doc[top].(map[string]any), rest, v)
	case v == nil:
		delete(doc, top)
	default:
		doc[top] = v
	}
}

// A flag lies over the file: it replaces maps and lists, and adds to the gates.
func TestFieldFlagsOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(`{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"maxPods": 20, "clusterDNS": ["10.0.0.10"], "kubeReserved": {"cpu": "1"}, "featureGates": {"ContainerCheckpoint": false, "NodeLogQuery": true},
		"authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Load(Options{Flags: parse(t, "--config", file, "--max-pods=30", "--cluster-dns", "10.0.0.11", "--cluster-dns=10.0.0.12",
		"--kube-reserved", "memory=1Gi", "--feature-gates=ContainerCheckpoint=true", "--anonymous-auth=false", "--hairpin-mode=none", "--containerd=/x",
		"--enable-load-reader")})
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxPods != 30 || !slices.Equal(c.ClusterDNS, []string{"10.0.0.11", "10.0.0.12"}) || len(c.KubeReserved) != 1 || c.KubeReserved["memory"] != "1Gi" ||
		!c.FeatureGates["ContainerCheckpoint"] || !c.FeatureGates["NodeLogQuery"] || *c.Authentication.Anonymous.Enabled || *c.Authentication.Webhook.Enabled {
		t.Errorf("configuration %+v", c.KubeletConfiguration)
	}
	all := strings.Join(warnings, "\n")
	for _, want := range []string{"--hairpin-mode is not supported", "--containerd has no effect", "--enable-load-reader has no effect"} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings %q, want %q among them", warnings, want)
		}
	}
	if strings.Contains(all, "--max-pods") || strings.Contains(all, "ContainerCheckpoint") {
		t.Errorf("warnings %q", warnings)
	}
}

func TestFieldFlagsWrong(t *testing.T) {
	for _, tc := range []struct{ arg, want string }{
		{"--max-pods=many", "whole number"},
		{"--max-pods=4294967297", "32 bits"},
		{"--sync-frequency=5", "missing unit"},
		{"--seccomp-default=maybe", "seccomp-default"},
		{"--kube-reserved=cpu", "name=value"},
		{"--feature-gates=A=yes", "true or false"},
		{"--manifest-url-header=secret", "name:value"},
		{"--register-with-taints=key", "key=value:effect"},
		{"--reserved-memory=x:memory=1", "node:type=amount"},
		{"--reserved-memory=0:memory=1,memory=2", "each type once"},
	} {
		f, fs := NewFlags(), flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(new(strings.Builder))
		f.Bind(fs)
		err := fs.Parse([]string{tc.arg})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.arg, err, tc.want)
		}
		if err != nil && strings.Contains(tc.arg, "header") && strings.Count(err.Error(), "secret") > 1 {
			t.Errorf("%s: %v", tc.arg, err)
		}
	}
	// If a flag causes an invalid field, the error names the flag.
	_, _, err := Load(Options{Flags: parse(t, "--image-gc-high-threshold=101")})
	if err == nil || !strings.Contains(err.Error(), "invalid flags: imageGCHighThresholdPercent") {
		t.Errorf("%v", err)
	}
}
