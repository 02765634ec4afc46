package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A manifest that would cost far more than its size says, or that has no end, is
// refused at once.
func TestCostlyManifestOfFit(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {limits: {cpu: \"%s\"}}}]}\n"
	laughs := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		laughs += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 10), ",") + "]\n"
	}
	read := func(name, text string) (err error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "pod.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			file = "/dev/zero"
		}
		done := make(chan error, 1)
		go func() {
			_, err := readPods(nil, file)
			done <- err
		}()
		select {
		case err = <-done:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: it is still read", name)
		}
		return err
	}
	if err := read("a pod", strings.Replace(pod, "%s", "100m", 1)); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"a quantity without end": strings.Replace(pod, "%s", "1e-2000000000", 1),
		"aliases":                pod + laughs,
		"a million of lines":     pod + strings.Repeat("#\n", 1<<20),
		"a file without end":     "",
	} {
		if err := read(name, text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A manifest of several documents is read whole, as the agent reads it; what is wrong
// is named with its document.
func TestManifestsOfFit(t *testing.T) {
	snap, err := readPods(nil, filepath.Join("..", "manifests", "web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Pods) != 1 || snap.Pods[0].Namespace+"/"+snap.Pods[0].Name != "default/web" {
		t.Errorf("pods %v, want default/web", snap.Pods)
	}
	for text, want := range map[string]string{
		"kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}":                             "-: has no pod; want at least one",
		"kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\n---\nkind: Job":             `-:5: kind: a single node has no Job controller; apply the pod itself: spec.template with kind Pod and a name, and restartPolicy OnFailure or Never`,
		"kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {containers: [], hosts: 1}": `-:4 (default/p): spec.hosts: unknown field`,
	} {
		_, err := readPods(strings.NewReader(text), "-")
		if err == nil || err.Error() != want {
			t.Errorf("%q: error %q, want %q", text, err, want)
		}
	}
}
