package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// A kernel is an unpacked kernel package.
type kernel struct {
	version string
	image   string
	tree    string   // directory of the modules
	boot    []string // modules that the kernel needs to mount its root file system
}

// provide checks the required programs. It installs a missing qemu if it can.
func provide(ctx context.Context, s settings) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("missing: Linux on amd64 (this is %s on %s)", runtime.GOOS, runtime.GOARCH)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return errors.New("missing: gcc, needed by the race detector; try apt-get install gcc libc6-dev")
	}
	if _, err := exec.LookPath(qemu); err == nil || s.uml {
		return nil
	}
	if os.Geteuid() == 0 {
		say("installing qemu-system-x86")
		cmd := exec.CommandContext(ctx, "sh", "-c", "i='apt-get install -qq -y --no-install-recommends qemu-system-x86'; "+
			"$i >/dev/null 2>&1 || { apt-get update -qq && $i; } >/dev/null 2>&1")
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if cmd.Run() == nil {
			return nil
		}
	}
	return errors.New("missing: " + qemu + "; try apt-get install qemu-system-x86")
}

// getKernel returns the kernel in the directory s.kernel. If s.kernel is "", it returns
// Debian's kernel from the directory vm, where it first unpacks the package if it is
// missing. "make clean" removes that kernel.
func getKernel(ctx context.Context, vm string, s settings) (kernel, error) {
	find, fetch, dir := findKernel, fetchKernel, filepath.Join(vm, "kernel")
	if s.uml {
		find, fetch, dir = findUML, fetchUML, filepath.Join(vm, "uml")
	}
	if s.kernel != "" {
		return find(s.kernel)
	}
	if k, err := find(dir); err == nil {
		return k, nil
	}
	if err := fetch(ctx, vm, dir); err != nil {
		return kernel{}, err
	}
	return find(dir)
}

// fetchKernel unpacks Debian's kernel package into dir.
func fetchKernel(ctx context.Context, vm, dir string) error {
	if _, err := exec.LookPath("apt-cache"); err != nil {
		return errNoApt("apt-cache")
	}
	out, err := output(ctx, vm, "apt-cache", "depends", "linux-image-amd64")
	if err != nil {
		return err
	}
	pkg, err := dependency(out)
	if err != nil {
		return err
	}
	return unpack(ctx, pkg, dir)
}

func errNoApt(program string) error {
	return fmt.Errorf("missing: %s, needed to download Debian's kernel; or unpack a kernel package and set -kernel to its directory", program)
}

// unpack downloads a Debian package and unpacks it into dir. After an error dir does not exist.
func unpack(ctx context.Context, pkg, dir string) error {
	for _, p := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(p); err != nil {
			return errNoApt(p)
		}
	}
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.RemoveAll(dir), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	say("getting %s", pkg)
	get := []string{"apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", pkg}
	if _, err := output(ctx, part, get...); err != nil { // the package lists may be old
		_, _ = output(ctx, part, "apt-get", "-qq", "update")
		if _, err := output(ctx, part, get...); err != nil {
			return fmt.Errorf("missing: Debian's package %s: %w", pkg, err)
		}
	}
	debs, err := filepath.Glob(filepath.Join(part, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download created %d packages, want 1", len(debs))
	}
	if _, err := output(ctx, part, "dpkg-deb", "-x", debs[0], "."); err != nil {
		return err
	}
	return errors.Join(os.Remove(debs[0]), os.Rename(part, dir))
}

// dependency returns the kernel package that linux-image-amd64 depends on. out is the output of
// "apt-cache depends".
func dependency(out string) (string, error) {
	for line := range strings.Lines(out) {
		if pkg, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + pkg, nil
		}
	}
	return "", errors.New("missing: Debian's package linux-image-amd64; try apt-get update")
}

func findKernel(dir string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return kernel{}, err
	}
	if len(images) != 1 {
		return kernel{}, fmt.Errorf("%d kernels match %s/boot/vmlinuz-*, want 1", len(images), dir)
	}
	k := kernel{
		image: images[0], version: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-"),
		boot: []string{"virtio_pci", "9pnet_virtio", "9p", "overlay"},
	}
	for _, lib := range []string{"lib", "usr/lib"} {
		k.tree = filepath.Join(dir, lib, "modules", k.version)
		if _, err := os.Stat(k.tree); err == nil {
			return k, nil
		}
	}
	return kernel{}, fmt.Errorf("no modules of Linux %s in %s", k.version, dir)
}

// output runs a program and returns its standard output. An error contains the program's
// standard error.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	var msg bytes.Buffer
	cmd.Stderr = &msg
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(msg.Bytes()))
	}
	return string(out), nil
}
