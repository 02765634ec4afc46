package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// licenseFile matches the names of files with licenses and notices.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)`)

// licenses returns the licenses and notices of all modules of a program, and of Go.
// The first of modules is this repository's own.
func licenses(ctx context.Context, repository string, modules []module) ([]byte, error) {
	args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, m := range modules[1:] {
		if m.path != "std" {
			args = append(args, m.path)
		}
	}
	list, err := output(ctx, repository, "go", args...)
	if err != nil {
		return nil, err
	}
	root, err := output(ctx, repository, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for line := range strings.Lines(list + "Go\t" + root) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !licenseFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&all, "==== %s: %s\n\n%s\n", name, e.Name(), text)
			found = true
		}
		if !found {
			return nil, fmt.Errorf("%s: no license in %s", name, dir)
		}
	}
	return all.Bytes(), nil
}

// output runs a program and returns its standard output.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var msg bytes.Buffer
	cmd.Stderr = &msg
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, bytes.TrimSpace(msg.Bytes()))
	}
	return string(out), nil
}
