// Package disk prepares block devices for mounting: it formats empty ones, and checks others.
//
//	err := disk.Prepare(ctx, disk.Program, mount.FileSystem{Type: "ext4", Source: "/dev/sdb"})
//
// A device that has another file system than the requested one is an [ErrMismatch]. Such a
// device, or one with unknown content, is never formatted.
package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Run runs a program and returns its output and exit code. err is not nil if the
// program did not run to its end.
type Run = func(ctx context.Context, program string, args ...string) (output string, exit int, err error)

// ErrMismatch means that a device has another file system than the requested one.
var ErrMismatch = errors.New("the device has another file system")

// Exit codes of blkid(8) and fsck(8).
const (
	blkidNothing     = 2
	fsckFixed        = 1
	fsckUncorrected  = 4
	maxProgramOutput = 512
)

// Prepare makes sure that a device has the requested file system: it formats an empty device,
// unless f has the option "ro", and checks any other. run executes blkid, fsck and mkfs.
func Prepare(ctx context.Context, run Run, f mount.FileSystem) error {
	readOnly := slices.Contains(f.Options, "ro")
	out, exit, err := run(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", f.Source)
	if err != nil {
		return fmt.Errorf("run blkid %s: %w", f.Source, err)
	}
	switch {
	case exit == blkidNothing && readOnly:
		return fmt.Errorf("device %s has no file system and is read-only", f.Source)
	case exit == blkidNothing:
		return format(ctx, run, f)
	case exit != 0:
		return fmt.Errorf("blkid %s: exit %d: %s", f.Source, exit, clip(out))
	}
	is, table := found(out)
	switch {
	case is == "" && table != "":
		return fmt.Errorf("device %s has a partition table (%s): %w", f.Source, table, ErrMismatch)
	case is == "":
		return fmt.Errorf("blkid %s: no file system type in %s", f.Source, clip(out))
	case is != f.Type:
		return fmt.Errorf("device %s has file system %s; want %s: %w", f.Source, is, f.Type, ErrMismatch)
	case readOnly:
		return nil
	}
	out, exit, err = run(ctx, "fsck", "-a", f.Source)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil // mount(2) rejects a file system that is too damaged
	case err != nil:
		return fmt.Errorf("run fsck %s: %w", f.Source, err)
	case exit > fsckFixed && exit&fsckUncorrected != 0:
		return fmt.Errorf("fsck %s: failed to correct errors of the file system: %s", f.Source, clip(out))
	}
	return nil
}

// found parses blkid's output: the type of a file system, or of a partition table.
func found(out string) (fsType, table string) {
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "TYPE":
			fsType = value
		case "PTTYPE":
			table = value
		}
	}
	return fsType, table
}

// format creates a file system on an empty device.
func format(ctx context.Context, run Run, f mount.FileSystem) error {
	if f.Type == "" || strings.ContainsAny(f.Type, "/ \x00") {
		return fmt.Errorf("file system %q; want the name of a type, such as ext4", f.Type)
	}
	var args []string
	switch f.Type {
	case "ext2", "ext3", "ext4":
		args = []string{"-F", "-m0"} // -F: whole disks too; -m0: no blocks reserved for root
	case "xfs":
		args = []string{"-f"}
	}
	out, exit, err := run(ctx, "mkfs."+f.Type, append(args, f.Source)...)
	if err == nil && exit != 0 {
		err = fmt.Errorf("exit %d: %s", exit, clip(out))
	}
	if err != nil {
		return fmt.Errorf("create file system %s on %s: %w", f.Type, f.Source, err)
	}
	return nil
}

func clip(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxProgramOutput {
		s = s[:maxProgramOutput] + "..."
	}
	return s
}

// maxKept limits the bytes of a program's output that are kept in memory. fsck may print much
// about a damaged disk.
const maxKept = 64 << 10

// head keeps the beginning of the data written to it.
type head struct{ kept bytes.Buffer } // not embedded, since its ReadFrom would keep everything

// Write implements io.Writer. It never fails.
func (h *head) Write(b []byte) (int, error) {
	_, _ = h.kept.Write(b[:min(len(b), maxKept-h.kept.Len())])
	return len(b), nil
}

// Program runs a program of the system, and returns the first 64 KiB of its output. The program
// is killed when ctx ends.
func Program(ctx context.Context, program string, args ...string) (output string, exit int, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	var out head
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil && e.Exited() {
		return out.kept.String(), e.ExitCode(), nil
	}
	return out.kept.String(), 0, err
}
