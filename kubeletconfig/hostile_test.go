//go:build unix

package kubeletconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/quantity"
)

// soon fails the test unless f ends within a time that is long for a small file.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
}

func TestReadNoFIFO(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "a.conf")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	for _, o := range []Options{{File: fifo}, {Dir: dir}, {File: "/dev/zero"}} {
		soon(t, func() {
			if _, _, err := Load(o); err == nil || !strings.Contains(err.Error(), "want a regular file") {
				t.Errorf("%+v: %v", o, err)
			}
		})
	}
	soon(t, func() {
		if _, err := LoadCredentialProviders(fifo); err == nil || !strings.Contains(err.Error(), "want a regular file") {
			t.Errorf("providers: %v", err)
		}
	})
}

func TestReadBounded(t *testing.T) {
	half := configHead + "# " + strings.Repeat("x", maxBytes/2) + "\n"
	for _, tc := range []struct {
		name string
		tree map[string]string
		ok   bool
	}{
		{"one that fits", map[string]string{"a.conf": half}, true},
		{"two that do not fit together", map[string]string{"a.conf": half, "b.conf": half}, false},
		{"one of any size", map[string]string{"a.conf": configHead + "# " + strings.Repeat("x", 4*maxBytes)}, false},
	} {
		_, _, err := Load(Options{Dir: files(t, tc.tree)})
		if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "at most 1048576 bytes in all its files") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestAliases(t *testing.T) {
	laughs := configHead + "a0: &a0 [ha, ha]\n"
	for i := range 25 {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	long := "x: &x " + strings.Repeat("x", 1<<16) + "\nclusterDNS: ["
	for _, tc := range []struct{ name, content, err string }{
		{"few", configHead + "systemReserved: &r {memory: 1Gi}\nkubeReserved: *r\n", ""},
		{"billion laughs", laughs, "excessive aliasing"},
		{"a long text many times", configHead + long + strings.Repeat("*x, ", 900) + "]\n", "want a document of at most 4194304 bytes once its aliases are replaced"},
		{"itself", configHead + "a: &a [*a]\n", "contains itself"},
	} {
		soon(t, func() {
			_, _, _, err := load(t, tc.content)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%s: error %.300v, want %q", tc.name, err, tc.err)
			}
		})
	}
	if _, err := parseProviders([]byte(long + strings.Repeat("*x, ", 900) + "]\n")); err == nil || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("providers: %.300v", err)
	}
}

// Kubernetes' parser computes with such exponents until the machine is out of
// memory or the reader out of time.
func TestExponents(t *testing.T) {
	const huge = "1e-2000000000"
	for field, content := range map[string]string{
		"systemReserved.memory":           "systemReserved: {memory: " + huge + "x}",
		"kubeReserved.cpu":                "kubeReserved: {cpu: '" + huge + "'}",
		"evictionHard.memory.available":   "evictionHard: {memory.available: '1E2000000000'}",
		"evictionSoft.memory.available":   "evictionSoft: {memory.available: '" + huge + "'}",
		"containerLogMaxSize":             "containerLogMaxSize: '" + huge + "'",
		"reservedMemory[0].limits.memory": "reservedMemory: [{numaNode: 0, limits: {memory: '1e99999999999999999999'}}]",
	} {
		soon(t, func() {
			if _, _, _, err := load(t, configHead+content+"\n"); err == nil || !regexp.MustCompile(`k\.yaml(:3)?: `+regexp.QuoteMeta(field)+": ").MatchString(err.Error()) {
				t.Errorf("%s: error %v", content, err)
			}
		})
	}
	soon(t, func() {
		err := Validate(&v1beta1.KubeletConfiguration{
			SystemReserved: map[string]string{"cpu": huge}, ContainerLogMaxSize: huge, EvictionHard: map[string]string{"memory.available": huge},
		})
		if err == nil || strings.Count(err.Error(), "\n") != 2 {
			t.Errorf("Validate: %v", err)
		}
	})
	for _, ok := range []string{"1e3", "1E", "1e+3", "12Ei", "1E-99", "e", "1ex"} {
		if !quantity.Cheap(ok) {
			t.Errorf("%s is refused", ok)
		}
	}
}

// An error of any number of mistakes stays short, and its lines are lines.
func TestMistakesBounded(t *testing.T) {
	for _, tc := range []struct{ content, last string }{
		{"clusterDNS: [" + strings.Repeat("x, ", 50000) + "]", "k.yaml:3: and 49900 more mistakes"},
		{"clusterDNS: [" + strings.Repeat("1, ", 50000) + "]", "k.yaml: clusterDNS[99]: 1: want a string"},
	} {
		soon(t, func() {
			_, _, _, err := load(t, configHead+tc.content+"\n")
			if err == nil || !strings.HasSuffix(err.Error(), tc.last) || strings.Count(err.Error(), "\n") > maxMistakes {
				t.Errorf("error %.200v", err)
			}
		})
	}
	_, _, _, err := load(t, configHead+"cpuManagerPolicy: static\ncpuManagerPolicyOptions: {\"a\\nb\": c}\nsystemCgroups: \"/a\\nb\"\n")
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "cpuManagerPolicyOptions.a b: ") {
		t.Errorf("error %v", err)
	}
	if _, _, _, err := load(t, configHead+"featureGates: {\"a\\nb\": true}\n"); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "featureGates.a b: ") {
		t.Errorf("error %v", err)
	}
}

// A large file of any content is rejected quickly, and with a short error.
func TestLargeFiles(t *testing.T) {
	const room = maxBytes / 8
	numbered := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < room; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, content := range map[string]string{
		"unknown fields":   numbered("f%d: 1\n"),
		"one field often":  numbered("maxPods: %d\n"),
		"feature gates":    "featureGates:\n" + numbered("  g%d: true\n"),
		"lists in lists":   "clusterDNS: " + strings.Repeat("[", room),
		"maps in maps":     "logging: " + strings.Repeat("{a: ", room/4),
		"wrong numbers":    "systemReserved:\n" + numbered("  r%d: 1\n"),
		"wrong amounts":    "systemReserved:\n" + numbered("  r%d: x\n"),
		"wrong taints":     "registerWithTaints:\n" + numbered("- {key: '%d '}\n"),
		"merges of merges": "x: &x {a: 1}\n" + numbered("m%d: {<<: *x}\n"),
		"one long text":    "clusterDomain: " + strings.Repeat("x", room),
		"anchors":          numbered("a%[1]d: &a%[1]d x\n"),
	} {
		soon(t, func() {
			began := time.Now()
			_, warnings, _, err := load(t, configHead+content+"\n")
			said := len(strings.Join(warnings, "\n")) + len(fmt.Sprint(err))
			if said > 100<<10 {
				t.Errorf("%s: %d bytes of warnings and errors", name, said)
			}
			t.Logf("%s: %v, %d bytes said", name, time.Since(began).Round(time.Millisecond), said)
		})
	}
}

func TestDropInsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxDropIns {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Load(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "want at most 1000 files below it") {
		t.Errorf("error %v", err)
	}
}
