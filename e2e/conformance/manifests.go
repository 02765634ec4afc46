package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// imageLine finds the images in a manifest.
var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: *"?([^\s"]+)`)

// manifestImages returns the names of the images in manifests of the suite, with their tags,
// sorted. pattern is a glob for the files, relative to the module of Kubernetes.
func manifestImages(ctx context.Context, o options, pattern string) ([]string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	list.Dir = filepath.Join(o.repository, "e2e")
	module, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list k8s.io/kubernetes: %w", err)
	}
	manifests, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), pattern))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range manifests {
		b, err := os.ReadFile(m)
		if err != nil {
			return nil, err
		}
		for _, found := range imageLine.FindAllSubmatch(b, -1) {
			names = append(names, string(found[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
