package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// checked is an agent that says of each pod what its annotation says.
type checked struct {
	*fakeAgent
	asked [][]string // the pods that were asked about, each with those beside it
}

func (c *checked) Fit(pod *v1.Pod, beside ...*v1.Pod) local.Fit {
	names := []string{pod.Name}
	for _, p := range beside {
		names = append(names, p.Name)
	}
	c.asked = append(c.asked, names)
	switch pod.Annotations["is"] {
	case "large":
		return local.Fit{Reason: "OutOfcpu", Message: "of the kubelet", Shortages: []string{"wants 64 CPUs, and 2 are free"}}
	case "lacking":
		return local.Fit{Fits: true, Missing: []local.FitMissing{
			{Kind: "ConfigMap", Name: "shop/here", Message: "ConfigMap shop/here is not here"}, {Kind: "Secret", Name: "shop/key", Message: "Secret shop/key is not here"},
		}}
	}
	return local.Fit{Fits: true, Requests: []string{"0.1 of 2 free CPUs"}}
}

func podManifest(name, is string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: shop, annotations: {is: \"" + is + "\"}}\nspec: {containers: [{name: c, image: i}]}\n---\n"
}

func TestCheck(t *testing.T) {
	settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: here, namespace: shop}\n"
	dir := files(t, map[string]string{
		"good.yaml": podManifest("web", ""), "two.yaml": podManifest("a", "") + podManifest("b", ""),
		"lacking.yaml": podManifest("db", "lacking") + settings, "large.yaml": podManifest("ai", "large"),
		"wrong.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec:\n  containers:\n  - name: c\n    iamge: i\n", "none.yaml": settings,
		"agent.yaml":    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 10\n",
		"mistaken.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: -1\nimageGCHighThresholdPercent: 200\nmaxPod: 3\n",
	})
	agent := &checked{fakeAgent: &fakeAgent{}}
	root := serveAgentOf(t, agent)
	in := func(text string) string { return strings.ReplaceAll(text, "DIR", dir) }
	if err := os.WriteFile(filepath.Join(dir, "with.yaml"), []byte(in("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: DIR/good.yaml\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		line string
		want []string // lines of the output, in this order
		code int
	}{
		{"check -f DIR/good.yaml", []string{"DIR/good.yaml: shop/web fits: 0.1 of 2 free CPUs", "1 pod would run"}, 0},
		{"check -f DIR/two.yaml", []string{"shop/a fits", "shop/b fits", "2 pods would run"}, 0},
		{"check -f DIR/lacking.yaml", []string{"shop/db would wait: Secret shop/key is not here", "0 of 1 pod would run"}, 1},
		{"check -f DIR/large.yaml", []string{"shop/ai does not fit: OutOfcpu: wants 64 CPUs, and 2 are free", "0 of 1 pod would run"}, 1},
		{"check -f DIR/wrong.yaml", []string{"DIR/wrong.yaml:7 (default/bad): spec.containers[0].iamge: unknown field; did you mean image?", "0 of 0 pods would run; 1 mistake"}, 1},
		{"check -f DIR/none.yaml", []string{"has no pod"}, 0},
		{"check --config DIR/agent.yaml", []string{"DIR/agent.yaml: is valid"}, 0},
		{"check --config DIR/with.yaml", []string{"DIR/with.yaml: is valid", "DIR/good.yaml: shop/web fits"}, 0},
		{"check --config DIR/agent.yaml -f DIR/large.yaml", []string{"is valid", "does not fit"}, 1},
		{"check --config DIR/mistaken.yaml", []string{"DIR/mistaken.yaml", "maxPods: -1: want", "imageGCHighThresholdPercent: 200: want"}, 1},
		{"check --config DIR/mistaken.yaml -f DIR/good.yaml", []string{"maxPods: -1: want", "1 pod would run"}, 1},
	} {
		stdout, stderr, code := ask(t, root, in(tc.line))
		if code != tc.code || stderr != "" {
			t.Errorf("agent %s: exit %d, want %d; stderr %q", tc.line, code, tc.code, stderr)
		}
		rest := stdout
		for _, want := range tc.want {
			_, after, ok := strings.Cut(rest, in(want))
			if !ok {
				t.Errorf("agent %s: %q; want %q", tc.line, stdout, tc.want)
				break
			}
			rest = after
		}
	}
	for _, tc := range []struct{ line, want string }{
		{"check", "check what? Give manifests with -f, or a configuration with --config"},
		{"check web.yaml", `check takes no argument, got "web.yaml"; give manifests with -f`},
		{"check -f DIR/nothing", "DIR/nothing: no such file or directory"},
	} {
		if stdout, stderr, code := ask(t, root, in(tc.line)); code != 1 || stdout != "" || !strings.Contains(stderr, in(tc.want)) {
			t.Errorf("agent %s: exit %d, %q, %q; want %q", tc.line, code, stdout, stderr, tc.want)
		}
	}
}

// Without an agent the manifests alone are checked, and that is said.
func TestCheckWithoutAnAgent(t *testing.T) {
	dir := files(t, map[string]string{"good.yaml": podManifest("web", ""), "wrong.yaml": "kind: Job\n"})
	for file, want := range map[string]struct {
		text string
		code int
	}{"good.yaml": {"shop/web has no mistake", 0}, "wrong.yaml": {"wrong.yaml:1: kind: a single node has no Job controller", 1}} {
		stdout, stderr, code := ask(t, t.TempDir(), "check -f "+filepath.Join(dir, file))
		if code != want.code || !strings.Contains(stdout, want.text) || file == "good.yaml" && !strings.Contains(stderr, "checked only the manifests") {
			t.Errorf("%s: exit %d, %q, %q; want %q", file, code, stdout, stderr, want.text)
		}
	}
}
