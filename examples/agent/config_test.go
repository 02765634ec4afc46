package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/kubeletconfig"
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
func load(t *testing.T, content string) (c *kubeletconfig.Config, warnings []string, path string, err error) {
	t.Helper()
	path = filepath.Join(files(t, map[string]string{"k.yaml": content}), "k.yaml")
	c, warnings, err = kubeletconfig.Load(kubeletconfig.Options{File: path})
	return c, warnings, path, err
}

// loadRun loads a main file with flags over it, as "agent run" does.
func loadRun(t *testing.T, content string, args ...string) (f *runFlags, c *kubeletconfig.Config, warnings []string, err error) {
	t.Helper()
	path := filepath.Join(files(t, map[string]string{"k.yaml": content}), "k.yaml")
	if f, err = parseRunFlags(append([]string{"--config", path}, args...)); err != nil {
		return nil, nil, nil, err
	}
	c, warnings, err = loadConfig(f)
	return f, c, warnings, err
}
