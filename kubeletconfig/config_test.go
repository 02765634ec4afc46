package kubeletconfig

import (
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const configHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// files writes a tree of files and returns its root.
func files(t *testing.T, tree map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range tree {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// load loads a main file.
func load(t *testing.T, content string) (c *Config, warnings []string, path string, err error) {
	t.Helper()
	path = filepath.Join(files(t, map[string]string{"k.yaml": content}), "k.yaml")
	c, warnings, err = Load(Options{File: path})
	return c, warnings, path, err
}

// parse parses flags.
func parse(t *testing.T, args ...string) *Flags {
	t.Helper()
	f := NewFlags()
	fs := flag.NewFlagSet("node", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	f.Bind(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

// loadWith loads a main file with flags over it.
func loadWith(t *testing.T, content string, args ...string) (*Config, []string, error) {
	t.Helper()
	path := filepath.Join(files(t, map[string]string{"k.yaml": content}), "k.yaml")
	return Load(Options{File: path, Flags: parse(t, args...)})
}

func TestConfigDefaults(t *testing.T) {
	fromFile, warnings, _, err := load(t, configHead)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("a file without fields: %v, warnings %q", err, warnings)
	}
	without, warnings, err := Load(Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("no file: %v, warnings %q", err, warnings)
	}
	for name, c := range map[string]*Config{"file": fromFile, "none": without} {
		for _, tc := range []struct {
			field     string
			got, want any
		}{
			{"syncFrequency", c.SyncFrequency.Duration, time.Minute},
			{"fileCheckFrequency", c.FileCheckFrequency.Duration, 20 * time.Second},
			{"httpCheckFrequency", c.HTTPCheckFrequency.Duration, 20 * time.Second},
			{"runtimeRequestTimeout", c.RuntimeRequestTimeout.Duration, 2 * time.Minute},
			{"registryPullQPS", *c.RegistryPullQPS, int32(5)},
			{"registryBurst", c.RegistryBurst, int32(10)},
			{"serializeImagePulls", *c.SerializeImagePulls, true},
			{"podLogsDir", c.PodLogsDir, "/var/log/pods"},
			{"resolvConf", *c.ResolverConfig, "/etc/resolv.conf"},
			{"seccompDefault", *c.SeccompDefault, false},
			{"cpuCFSQuota", *c.CPUCFSQuota, true},
			{"cpuCFSQuotaPeriod", c.CPUCFSQuotaPeriod.Duration, 100 * time.Millisecond},
			{"singleProcessOOMKill", *c.SingleProcessOOMKill, false},
			{"imagePullCredentialsVerificationPolicy", string(c.ImagePullCredentialsVerificationPolicy), "NeverVerifyPreloadedImages"},
			{"maxPods", c.MaxPods, int32(110)},
			{"podsPerCore", c.PodsPerCore, int32(0)},
			{"healthzPort", *c.HealthzPort, int32(10248)},
			{"healthzBindAddress", c.HealthzBindAddress, "127.0.0.1"},
			{"containerRuntimeEndpoint", c.ContainerRuntimeEndpoint, ""}, // found by trying
		} {
			if tc.got != tc.want {
				t.Errorf("%s: %s = %v, want %v", name, tc.field, tc.got, tc.want)
			}
		}
	}
}

func TestConfigFields(t *testing.T) {
	type config = Config
	for _, tc := range []struct {
		name, content string
		got           func(c *config) any
		want          any
	}{
		{"yaml", configHead + "maxPods: 20", func(c *config) any { return c.MaxPods }, int32(20)},
		{"json", `{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","maxPods":20}`,
			func(c *config) any { return c.MaxPods }, int32(20)},
		{"marker and comment first", "# mine\n---\n" + configHead + "maxPods: 20", func(c *config) any { return c.MaxPods }, int32(20)},
		{"duration", configHead + "syncFrequency: 1h30m", func(c *config) any { return c.SyncFrequency.Duration }, 90 * time.Minute},
		{"duration of 0 means the default", configHead + "syncFrequency: 0s", func(c *config) any { return c.SyncFrequency.Duration }, time.Minute},
		{"null means the default", configHead + "maxPods: null", func(c *config) any { return c.MaxPods }, int32(110)},
		{"0 of a pointer stays", configHead + "healthzPort: 0", func(c *config) any { return *c.HealthzPort }, int32(0)},
		{"empty resolvConf stays", configHead + `resolvConf: ""`, func(c *config) any { return *c.ResolverConfig }, ""},
		{"parallel pulls from 2", configHead + "maxParallelImagePulls: 2", func(c *config) any { return *c.SerializeImagePulls }, false},
		{"parallel pulls of 1", configHead + "maxParallelImagePulls: 1", func(c *config) any { return *c.SerializeImagePulls }, true},
		{"reserved", configHead + "systemReserved: {cpu: 100m}", func(c *config) any { return c.SystemReserved["cpu"] }, "100m"},
		{"crash loop", configHead + "crashLoopBackOff: {maxContainerRestartPeriod: 30s}",
			func(c *config) any { return c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration }, 30 * time.Second},
		{"absolute path", configHead + "staticPodPath: /m", func(c *config) any { return c.StaticPodPath }, "/m"},
		{"empty path", configHead + `staticPodPath: ""`, func(c *config) any { return c.StaticPodPath }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, warnings, _, err := load(t, tc.content)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("error %v, warnings %q", err, warnings)
			}
			if got := tc.got(c); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Each error names the file and, if there is one, the field, with its value and what is allowed.
func TestConfigWrong(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		want          []string
	}{
		{"empty", "", []string{"k.yaml: the file is empty; want kind KubeletConfiguration"}},
		{"blank", " \n\n", []string{"the file is empty"}},
		{"comments only", "# later\n", []string{"the file is empty"}},
		{"list", "- a\n", []string{`want a KubeletConfiguration, got "[\"a\"]"`}},
		{"text", "hello", []string{"want a KubeletConfiguration"}},
		{"syntax", configHead + "maxPods: [1", []string{"k.yaml: yaml: line 3"}},
		{"not text", "\x00\x01", []string{"k.yaml: yaml: control characters"}},
		{"no kind", "apiVersion: kubelet.config.k8s.io/v1beta1", []string{`kind (none) of apiVersion "kubelet`, "want kind KubeletConfiguration of apiVersion kubelet.config.k8s.io/v1beta1"}},
		{"no apiVersion", "kind: KubeletConfiguration", []string{`kind "KubeletConfiguration" of apiVersion (none); want`}},
		{"a pod", "kind: Pod\napiVersion: v1", []string{`kind "Pod" of apiVersion "v1"; want kind KubeletConfiguration`}},
		{"old version", "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1alpha1", []string{`v1alpha1"; want`}},
		{"kind is a number", "kind: 7\napiVersion: v1", []string{"kind 7 of"}},
		{"second kind wins", configHead + "kind: Pod", []string{`kind "Pod"`}},

		{"text for a number", configHead + "maxPods: many", []string{`k.yaml: maxPods: "many": want a whole number of 32 bits`}},
		{"quoted number", configHead + `maxPods: "110"`, []string{`k.yaml: maxPods: "110": want a whole number`}},
		{"number too large", configHead + "maxPods: 3000000000", []string{`maxPods: 3000000000: want a whole number of 32 bits`}},
		{"fraction", configHead + "maxPods: 1.5", []string{`maxPods: 1.5: want a whole number`}},
		{"negative verbosity", configHead + "logging: {verbosity: -1}", []string{"logging.verbosity: -1: want a whole number of 0 or more"}},
		{"text for a truth", configHead + "seccompDefault: sometimes", []string{`seccompDefault: "sometimes": want true or false`}},
		{"number for a text", configHead + "clusterDomain: 1", []string{"clusterDomain: 1: want a string"}},
		{"text for a list", configHead + "clusterDNS: 10.0.0.10", []string{`clusterDNS: "10.0.0.10": want a list`}},
		{"number in a list", configHead + "clusterDNS: [10.0.0.10, 1]", []string{"clusterDNS[1]: 1: want a string"}},
		{"number in a map", configHead + "systemReserved: {memory: 1}", []string{"systemReserved.memory: 1: want a string"}},
		{"list for a map", configHead + "systemReserved: [cpu]", []string{`systemReserved: ["cpu"]: want a map`}},
		{"field without effect", configHead + "cpuManagerReconcilePeriod: soon", []string{`cpuManagerReconcilePeriod: "soon": want a duration`}},
		{"duration without a unit", configHead + `syncFrequency: "5"`, []string{`k.yaml: syncFrequency: "5": want a duration such as 30s`}},
		{"duration as a number", configHead + "syncFrequency: 5", []string{`syncFrequency: 5: want a duration such as 30s`}},
		{"duration in words", configHead + "fileCheckFrequency: 5 minutes", []string{`fileCheckFrequency: "5 minutes": want a duration`}},
		{"duration too long", configHead + "fileCheckFrequency: 9999999h", []string{`fileCheckFrequency: "9999999h": want a duration`}},
		{"nested duration", configHead + "crashLoopBackOff: {maxContainerRestartPeriod: x}", []string{`crashLoopBackOff.maxContainerRestartPeriod: "x": want a duration`}},
		{"negative duration", configHead + "syncFrequency: -5s", []string{`k.yaml:3: syncFrequency: "-5s": want a duration above 0`}},
		{"all at once", configHead + "maxPods: x\nclusterDomain: 1\nsyncFrequency: y", []string{"maxPods: ", "clusterDomain: ", "syncFrequency: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, path, err := load(t, tc.content)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(tc.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

// Nothing is ignored without a word.
func TestConfigWarnings(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		want          []string // what each warning contains
	}{
		{"unknown fields", configHead + "maxPod: 1\ncrashLoopBackOff: {max: 1s}",
			[]string{`k.yaml: unknown field "crashLoopBackOff.max"; it has no effect`, `k.yaml: unknown field "maxPod"; it has no effect`}},
		{"wrong case", configHead + "maxpods: 7", []string{`unknown field "maxpods"`}},
		{"field twice", configHead + "maxPods: 1\nmaxPods: 2", []string{"maxPods: set more than once; the last value is used"}},
		{"merge with an override", configHead + "evictionHard: &e {memory.available: 1Mi}\nevictionSoft: {<<: *e, memory.available: 2Mi}\nevictionSoftGracePeriod: {memory.available: 1m}", nil},
		{"not supported", configHead + "hairpinMode: none\nkernelMemcgNotification: true",
			[]string{"hairpinMode is not supported and has no effect", "kernelMemcgNotification is not"}},
		{"not supported below a supported one", configHead + "logging: {verbosity: 2, sanitization: true}", []string{"k.yaml: unknown field", "logging.sanitization is not"}},
		{"what has an effect", configHead + "allowedUnsafeSysctls: [kernel.msg*]\nregisterNode: false", nil},
		{"no time is not set", configHead + "streamingConnectionIdleTimeout: 0s\nlogging: {none: 0s}", []string{"k.yaml: unknown field"}},
		{"port 0", configHead + "port: 0", []string{"port: 0 is the default, 10250, as in the kubelet; enableServer: false opens no port"}},
		{"port 0 of no server", configHead + "port: 0\nenableServer: false", nil},
		{"null is not set", configHead + "kernelMemcgNotification: null", nil},
		{"a second document", configHead + "---\n" + configHead, []string{"k.yaml: only the first YAML document is used"}},
		{"an empty second document", configHead + "---\n# end\n", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, warnings, _, err := load(t, tc.content)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(warnings)
			if len(warnings) != len(tc.want) {
				t.Fatalf("warnings %q, want %d", warnings, len(tc.want))
			}
			for i, want := range tc.want {
				got := strings.TrimPrefix(warnings[i], filepath.Dir(warnings[i])+"/")
				if !strings.Contains(got, want) || strings.Contains(got, "\n") {
					t.Errorf("warning %q, want %q in one line", warnings[i], want)
				}
			}
			if tc.name == "wrong case" && c.MaxPods != 110 {
				t.Errorf("maxpods, which is no field, made maxPods %d", c.MaxPods)
			}
		})
	}
}

func TestConfigRelativePaths(t *testing.T) {
	dir := files(t, map[string]string{"k.yaml": configHead + "staticPodPath: pods\nresolvConf: ../r.conf\npodLogsDir: ./logs/\ntlsCertFile: c\ntlsPrivateKeyFile: k\nauthentication: {x509: {clientCAFile: pki/ca}}\n"})
	t.Chdir(dir)
	for _, path := range []string{filepath.Join(dir, "k.yaml"), "k.yaml"} {
		c, _, err := Load(Options{File: path})
		if err != nil {
			t.Errorf("--config %s: %v", path, err)
			continue
		}
		got := []string{c.StaticPodPath, *c.ResolverConfig, c.PodLogsDir, c.TLSCertFile, c.TLSPrivateKeyFile, c.Authentication.X509.ClientCAFile}
		want := []string{filepath.Join(dir, "pods"), filepath.Join(filepath.Dir(dir), "r.conf"), filepath.Join(dir, "logs"), filepath.Join(dir, "c"), filepath.Join(dir, "k"), filepath.Join(dir, "pki/ca")}
		if !slices.Equal(got, want) {
			t.Errorf("--config %s: %q, want %q", path, got, want)
		}
	}
}

func TestConfigDropIns(t *testing.T) {
	dir := files(t, map[string]string{
		"k.yaml": configHead + "maxPods: 1\nclusterDomain: main\nclusterDNS: [10.0.0.1, 10.0.0.2]\nsystemReserved: {cpu: '1', memory: 1Gi}\n",
		// Lexical order, directories in place: 10-a/z.conf before 20.conf.
		"d/10-a/z.conf": configHead + "maxPods: 2\nclusterDNS: [10.0.0.9]\n",
		"d/10-b/z.conf": configHead + "maxPods: 3\n",
		"d/20.conf":     configHead + "maxPods: 4\nsystemReserved: {memory: 2Gi}\nmaxParallelImagePulls: 3\n",
		"d/30.conf":     configHead + "clusterDomain: null\n",
		"d/40.yaml":     configHead + "maxPods: 5\n",
	})
	main := filepath.Join(dir, "k.yaml")
	if err := os.Symlink("d", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"d", "d/", "link"} {
		c, warnings, err := Load(Options{File: main, Dir: dir + "/" + d})
		if err != nil {
			t.Fatal(err)
		}
		if c.MaxPods != 4 || c.ClusterDomain != "" || !slices.Equal(c.ClusterDNS, []string{"10.0.0.9"}) ||
			!maps.Equal(c.SystemReserved, map[string]string{"cpu": "1", "memory": "2Gi"}) || *c.SerializeImagePulls {
			t.Errorf("%s: maxPods %d, clusterDomain %q, clusterDNS %q, systemReserved %v, serializeImagePulls %v", d,
				c.MaxPods, c.ClusterDomain, c.ClusterDNS, c.SystemReserved, *c.SerializeImagePulls)
		}
		if len(warnings) != 1 || !strings.Contains(warnings[0], "40.yaml: ignored") {
			t.Errorf("%s: warnings %q, want one of 40.yaml", d, warnings)
		}
	}
	// Without a main file the drop-ins lie over the defaults.
	if c, _, err := Load(Options{Dir: dir + "/d"}); err != nil || c.MaxPods != 4 || c.HealthzBindAddress != "127.0.0.1" {
		t.Errorf("drop-ins alone: %v", err)
	}
}

func TestConfigDropInsWrong(t *testing.T) {
	good := configHead + "maxPods: 7\n"
	for _, tc := range []struct {
		name string
		tree map[string]string
		want []string
	}{
		{"empty", map[string]string{"d/a.conf": ""}, []string{"d/a.conf: the file is empty"}},
		{"kind", map[string]string{"d/a.conf": "kind: X\napiVersion: v1"}, []string{`d/a.conf: kind "X"`}},
		{"no kind", map[string]string{"d/a.conf": "maxPods: 1"}, []string{"d/a.conf: kind (none)"}},
		{"syntax", map[string]string{"d/a.conf": "{"}, []string{"d/a.conf: yaml"}},
		{"type", map[string]string{"d/a.conf": good, "d/b.conf": configHead + "maxPods: x"}, []string{`d/b.conf: maxPods: "x": want`}},
		{"value, blamed on the last to set it", map[string]string{"d/a.conf": good, "d/b.conf": configHead + "maxPods: -7"},
			[]string{"d/b.conf:3: maxPods: -7: want 0 or more"}},
		{"relative path", map[string]string{"d/a.conf": configHead + "staticPodPath: pods"}, []string{`d/a.conf:3: staticPodPath: "pods": want an absolute path`}},
		{"no directory", map[string]string{"x": ""}, []string{"d: no such file"}},
		{"a file", map[string]string{"d": good}, []string{"--config-dir=", "want a directory"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := Load(Options{Dir: files(t, tc.tree) + "/d"})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestConfigMissing(t *testing.T) {
	if _, _, err := Load(Options{File: "/does/not/exist"}); !os.IsNotExist(err) || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("error %v", err)
	}
	if _, _, err := Load(Options{File: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
}

// Flags win over the file, where they are given.
func TestConfigFlagsOverFile(t *testing.T) {
	const conf = configHead + "staticPodPath: /file\nstaticPodURL: http://file/\ncontainerRuntimeEndpoint: /file.sock\n" +
		"imageServiceEndpoint: /file-image.sock\nfailCgroupV1: false\n"
	for _, tc := range []struct {
		args string
		want []string // path, URL, runtime, images
	}{
		{"", []string{"/file", "http://file/", "/file.sock", "/file-image.sock"}},
		{"--pod-manifest-path /flag", []string{"/flag", "http://file/", "/file.sock", "/file-image.sock"}},
		{"--pod-manifest-path=", []string{"", "http://file/", "/file.sock", "/file-image.sock"}},
		{"--manifest-url http://flag/", []string{"/file", "http://flag/", "/file.sock", "/file-image.sock"}},
		{"--container-runtime-endpoint=", []string{"/file", "http://file/", "", "/file-image.sock"}},
		{"--container-runtime-endpoint unix:///f --image-service-endpoint unix:///i",
			[]string{"/file", "http://file/", "unix:///f", "unix:///i"}},
	} {
		c, _, err := loadWith(t, conf, strings.Fields(tc.args)...)
		if err != nil {
			t.Fatalf("%s: %v", tc.args, err)
		}
		if got := []string{c.StaticPodPath, c.StaticPodURL, c.ContainerRuntimeEndpoint, c.ImageServiceEndpoint}; !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.args, got, tc.want)
		}
	}
}

func TestConfigFlagsRelative(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c, _, err := Load(Options{Flags: parse(t, "--root-dir", "state", "--pod-manifest-path", "pods")})
	if err != nil {
		t.Fatal(err)
	}
	if c.RootDir != dir+"/state" || c.StaticPodPath != dir+"/pods" {
		t.Errorf("root %q, pods %q", c.RootDir, c.StaticPodPath)
	}
}

func TestConfigMergePatch(t *testing.T) { // the cases of RFC 7396, appendix A, that objects can meet
	for _, tc := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"a":"foo"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		if got := show(mergePatch(decoded(t, tc.target), decoded(t, tc.patch))); got != tc.want {
			t.Errorf("%s with %s: %s, want %s", tc.target, tc.patch, got, tc.want)
		}
	}
}

func decoded(t *testing.T, s string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
