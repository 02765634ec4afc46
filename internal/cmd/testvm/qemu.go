package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

const qemu = "qemu-system-x86_64"

// hostTag names the share of this system's root.
const hostTag = "host"

// qemuArgs describe the machine: a console on stdio, a second serial port for
// the results, this system's root read-only, no network card, no disk.
// The kernel restarts on a panic, and -no-reboot makes an end of that.
func qemuArgs(s settings, image, initramfs, resultFile string) []string {
	return []string{
		"-accel", s.accel, "-cpu", "max", "-smp", strconv.Itoa(s.cpus), "-m", s.memory,
		"-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", image, "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1",
		"-serial", "stdio", "-serial", "file:" + resultFile,
		"-virtfs", "local,path=/,mount_tag=" + hostTag + ",security_model=none,readonly=on,multidevs=remap",
	}
}

// boot runs the machine to its end and returns what it told.
func boot(ctx context.Context, s settings, image, initramfs, vm string) (results, error) {
	resultFile := filepath.Join(vm, "results")
	log, err := os.Create(filepath.Join(vm, "console.log"))
	if err != nil {
		return results{}, err
	}
	defer func() { _ = log.Close() }()
	limited, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	cmd := exec.CommandContext(limited, qemu, qemuArgs(s, image, initramfs, resultFile)...)
	cmd.Stdout = noCR{io.MultiWriter(os.Stdout, log)}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C is for this command alone
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return results{}, context.Cause(ctx)
	case limited.Err() != nil:
		say("the machine is stopped: it ran for %s", s.limit)
	case err != nil:
		return results{}, fmt.Errorf("%s: %w", qemu, err)
	}
	told, err := os.ReadFile(resultFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return results{}, err
	}
	return parseResults(told), nil
}
