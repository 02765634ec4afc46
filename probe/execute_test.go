package probe

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/probe/check"
)

func TestResolvePort(t *testing.T) {
	c := &v1.Container{Name: "a", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "bad", ContainerPort: 66666}}}
	for _, x := range []struct {
		port intstr.IntOrString
		want int // 0: an error
	}{
		{intstr.FromInt32(80), 80},
		{intstr.FromString("web"), 8080},
		{intstr.FromString("118"), 118},
		{intstr.FromInt32(66666), 0},
		{intstr.FromInt32(0), 0},
		{intstr.FromInt32(-1), 0},
		{intstr.FromString("bad"), 0},
		{intstr.FromString("unknown"), 0},
		{intstr.FromString("66666"), 0},
		{intstr.IntOrString{Type: 7, IntVal: 80}, 0},
	} {
		got, err := resolvePort(x.port, c)
		if got != x.want && x.want != 0 || (err == nil) != (x.want != 0) {
			t.Errorf("%v: %d, %v; want %d", x.port, got, err, x.want)
		}
	}
}

func TestExpand(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: "old"}, {Name: "A", Value: "a"}, {Name: "SECRET", ValueFrom: &v1.EnvVarSource{}}}
	for in, want := range map[string]string{
		"$(A)": "a", "x$(A)$(A)y": "xaay", "$(B)": "$(B)", "$(SECRET)": "$(SECRET)", "$$(A)": "$(A)", "$$$(A)": "$a",
		"$": "$", "$(A": "$(A", "$A": "$A", "plain": "plain", "": "", "$(": "$(", "a$b$(A)": "a$ba",
	} {
		if got := expand(in, env, maxArgument); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A command of references to a long variable does not grow beyond what a program
// can be given.
func TestExpandAllIsBounded(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 100<<10)}}
	command := []string{"a", strings.Repeat("$(A)", 100000)}
	for range 1000 {
		command = append(command, "$(A)")
	}
	size := 0
	out := expandAll(command, env)
	for _, s := range out {
		size += len(s)
	}
	if out[1] != command[1] || len(out[2]) != 100<<10 || size > maxCommand+len(command[1])+4*len(command) {
		t.Errorf("%d bytes: %d, %d, ...", size, len(out[1]), len(out[2]))
	}
}

func TestHTTPTarget(t *testing.T) {
	m, err := New(Config{UserAgent: "agent/1"})
	if err != nil {
		t.Fatal(err)
	}
	spec := &v1.Container{Name: "a", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}}
	for _, c := range []struct {
		name string
		get  v1.HTTPGetAction
		ip   string
		want string // "" is an error
	}{
		{"defaults", v1.HTTPGetAction{Port: intstr.FromString("web")}, "10.0.0.1", "http://10.0.0.1:8080"},
		{"all", v1.HTTPGetAction{Scheme: "HTTPS", Host: "h", Port: intstr.FromInt32(1), Path: "/x?y"}, "10.0.0.1", "https://h:1/x?y"},
		{"IPv6", v1.HTTPGetAction{Port: intstr.FromInt32(1)}, "fd00::1", "http://[fd00::1]:1"},
		{"no address", v1.HTTPGetAction{Port: intstr.FromInt32(1)}, "", ""},
		{"no port", v1.HTTPGetAction{}, "10.0.0.1", ""},
	} {
		c.get.HTTPHeaders = []v1.HTTPHeader{{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}}
		h, err := m.http(target{probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &c.get}}, spec: spec, ip: c.ip})
		if err != nil {
			if c.want != "" {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if h.URL.String() != c.want || strings.Join(h.Header["X-A"], ",") != "1,2" || h.Header.Get("User-Agent") != "agent/1" {
			t.Errorf("%s: %v %v, want %s", c.name, h.URL, h.Header, c.want)
		}
	}
}

func TestAddress(t *testing.T) {
	m, err := New(Config{HostIP: "192.0.2.9"})
	if err != nil {
		t.Fatal(err)
	}
	ready := &observed.Pod{Sandboxes: []observed.Sandbox{{State: observed.Running, IPs: []string{"10.0.0.1", "fd00::1"}}}}
	for _, c := range []struct {
		name string
		pod  v1.Pod
		obs  *observed.Pod
		want string
	}{
		{"sandbox", v1.Pod{Status: v1.PodStatus{PodIP: "10.9.9.9"}}, ready, "10.0.0.1"},
		{"status", v1.Pod{Status: v1.PodStatus{PodIP: "10.9.9.9"}}, &observed.Pod{}, "10.9.9.9"},
		{"none", v1.Pod{}, &observed.Pod{}, ""},
		{"host, by the status", v1.Pod{Spec: v1.PodSpec{HostNetwork: true}, Status: v1.PodStatus{HostIPs: []v1.HostIP{{IP: "192.0.2.1"}}}}, &observed.Pod{}, "192.0.2.1"},
		{"host, by Config", v1.Pod{Spec: v1.PodSpec{HostNetwork: true}}, &observed.Pod{}, "192.0.2.9"},
	} {
		if got := m.address(&c.pod, c.obs); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	_, err := New(Config{Parallel: -1, ParallelExec: -2})
	if want := "probe: Config.Parallel is -1; want a positive number\nConfig.ParallelExec is -2; want a positive number"; err == nil || err.Error() != want {
		t.Errorf("New: %v", err)
	}
}

// Requests are built from what users write, without a panic.
func FuzzTarget(f *testing.F) {
	m, err := New(Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("HTTP", "h", "80", "/x", "Host", "y")
	f.Add("", "", "web", "?", "", "")
	f.Fuzz(func(t *testing.T, scheme, host, port, path, name, value string) {
		g := &v1.HTTPGetAction{Scheme: v1.URIScheme(scheme), Host: host, Port: intstr.FromString(port), Path: path, HTTPHeaders: []v1.HTTPHeader{{Name: name, Value: value}}}
		h, err := m.http(target{probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: g}}, spec: &v1.Container{}, ip: "10.0.0.1"})
		if err != nil {
			return
		}
		if req, err := http.NewRequest(http.MethodGet, h.URL.String(), nil); err == nil && host == "" && req.URL.Hostname() != "10.0.0.1" && scheme == "http" {
			t.Fatalf("%q leads to %q", path, req.URL.Hostname())
		}
	})
}

// Of both streams of a command only what is used is copied and kept.
func TestJoin(t *testing.T) {
	long := bytes.Repeat([]byte("o"), 16<<20)
	for _, c := range []struct {
		stdout, stderr []byte
		want           string // the end
		size           int
	}{
		{nil, nil, "", 0},
		{[]byte("a"), []byte("b"), "ab", 2},
		{[]byte("a"), long, "oo", check.MaxOutput},
		{long, []byte("b"), "oo", check.MaxOutput},
		{long[:check.MaxOutput-1], []byte("bc"), "ob", check.MaxOutput},
		{long, long, "oo", check.MaxOutput},
	} {
		got := join(c.stdout, c.stderr)
		if len(got) != c.size || !strings.HasSuffix(string(got), c.want) || cap(got) > 2*check.MaxOutput {
			t.Errorf("%d and %d bytes: %d bytes with room for %d that end with %q; want %d with %q",
				len(c.stdout), len(c.stderr), len(got), cap(got), got[max(0, len(got)-2):], c.size, c.want)
		}
	}
}
