package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// An archive is Debian's archive of packages for one architecture, as apt reads it.
type archive struct {
	arch    string
	options []string // of apt's programs
}

// newArchive returns the archive of an architecture. For a foreign architecture, apt takes the
// sources of this system, and keeps its lists below the directory vm: this system's lists and
// architectures do not change.
func newArchive(a architecture, vm string) (archive, error) {
	d := archive{arch: a.name, options: []string{"-o", "APT::Sandbox::User=root"}}
	if !a.foreign() {
		return d, nil
	}
	apt := filepath.Join(vm, "apt")
	status := filepath.Join(apt, "status") // of dpkg: nothing is installed
	for name, value := range map[string]string{
		"APT::Architecture": a.name, "APT::Architectures": a.name, "Acquire::Languages": "none",
		"Dir::State": filepath.Join(apt, "state"), "Dir::State::status": status, "Dir::Cache": filepath.Join(apt, "cache"),
	} {
		d.options = append(d.options, "-o", name+"="+value)
	}
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, dir), 0o755); err != nil {
			return archive{}, err
		}
	}
	return d, os.WriteFile(status, nil, 0o644)
}

// apt runs one of apt's programs in the directory dir. If it fails, apt updates the package lists,
// which may be old or missing, and runs it again.
func (d archive) apt(ctx context.Context, dir, program string, args ...string) (string, error) {
	if _, err := exec.LookPath(program); err != nil {
		return "", errNoApt(program)
	}
	command := slices.Concat([]string{program, "-qq"}, d.options, args)
	out, err := output(ctx, dir, command...)
	if err == nil {
		return out, nil
	}
	_, _ = output(ctx, dir, slices.Concat([]string{"apt-get", "-qq"}, d.options, []string{"update"})...)
	return output(ctx, dir, command...)
}

func errNoApt(program string) error {
	return fmt.Errorf("missing: %s, needed to download packages of Debian; or unpack a kernel package and set -kernel to its directory", program)
}

// unpack downloads a package and unpacks it into dir. After an error dir does not exist.
func (d archive) unpack(ctx context.Context, pkg, dir string) error {
	return d.get(ctx, dir, "download", pkg)
}

// unpackAll downloads packages and those that they depend on, and unpacks them into dir. It runs none
// of their scripts. After an error dir does not exist.
func (d archive) unpackAll(ctx context.Context, packages []string, dir string) error {
	return d.get(ctx, dir, slices.Concat([]string{"install", "--yes", "--download-only", "--no-install-recommends"}, packages)...)
}

// get unpacks into dir what apt-get downloads with the arguments args.
func (d archive) get(ctx context.Context, dir string, args ...string) error {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return errNoApt("dpkg-deb")
	}
	debs, part := dir+".debs", dir+".part"
	defer func() { _ = os.RemoveAll(debs) }()
	if err := errors.Join(os.RemoveAll(debs), os.RemoveAll(part), os.RemoveAll(dir), os.MkdirAll(debs+"/partial", 0o755), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	say("getting %s for %s", strings.Join(args, " "), d.arch)
	if _, err := d.apt(ctx, debs, "apt-get", slices.Concat([]string{"-o", "Dir::Cache::archives=" + debs}, args)...); err != nil {
		return fmt.Errorf("missing: packages of Debian: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("apt-get %s downloaded nothing", strings.Join(args, " "))
	}
	for _, f := range files {
		if _, err := output(ctx, part, "dpkg-deb", "-x", f, "."); err != nil {
			return err
		}
	}
	return os.Rename(part, dir)
}
