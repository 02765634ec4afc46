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
	pod := "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, resources: {limits: {cpu: \"%s\"}}}]}\n"
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
			_, err := readPod(nil, file)
			done <- err
		}()
		select {
		case err = <-done:
		case <-time.After(20 * time.Second):
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
