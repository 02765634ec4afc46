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
	if runtime.GOOS != "linux" {
		return fmt.Errorf("missing: Linux (this is %s)", runtime.GOOS)
	}
	if _, err := exec.LookPath("gcc"); err != nil && !s.arch.foreign() {
		return errors.New("missing: gcc, needed by the race detector; try apt-get install gcc libc6-dev")
	}
	if _, err := exec.LookPath(s.arch.qemu); err == nil || s.uml {
		return nil
	}
	if os.Geteuid() == 0 {
		say("installing %s", s.arch.pkg)
		cmd := exec.CommandContext(ctx, "sh", "-c", "i='apt-get install -qq -y --no-install-recommends "+s.arch.pkg+"'; "+
			"$i >/dev/null 2>&1 || { apt-get update -qq && $i; } >/dev/null 2>&1")
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if cmd.Run() == nil {
			return nil
		}
	}
	return fmt.Errorf("missing: %s; try apt-get install %s", s.arch.qemu, s.arch.pkg)
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
	if err := fetch(ctx, vm, dir, s); err != nil {
		return kernel{}, err
	}
	return find(dir)
}

// fetchKernel unpacks Debian's kernel package for s.arch into dir.
func fetchKernel(ctx context.Context, vm, dir string, s settings) error {
	from, err := newArchive(s.arch, vm)
	if err != nil {
		return err
	}
	meta := "linux-image-" + s.arch.name
	out, err := from.apt(ctx, vm, "apt-cache", "depends", meta)
	if err != nil {
		return err
	}
	pkg, err := dependency(out)
	if err != nil {
		return fmt.Errorf("package %s: %w", meta, err)
	}
	return from.unpack(ctx, pkg, dir)
}

// dependency returns the kernel package that Debian's newest kernel depends on. out is the output of
// "apt-cache depends".
func dependency(out string) (string, error) {
	for line := range strings.Lines(out) {
		if pkg, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + pkg, nil
		}
	}
	return "", errors.New("depends on no kernel; try apt-get update")
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
