package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/loopdev"
	"github.com/nodewright/nodewright/internal/safefile"
)

// ext4 is the only file system that disks may have.
const ext4 = "ext4"

// disks are images that become block devices.
type disks interface {
	// attach returns the block device of an image. It creates the device if the image
	// has none.
	attach(image string) (device string, err error)
	// detach removes the block devices of an image.
	detach(image string) error
	// format creates the file system on a device.
	format(ctx context.Context, device string) error
	// grow increases the block devices of an image to the size of the image.
	grow(image string) error
	// fit increases a file system that is not mounted to the size of its device.
	fit(ctx context.Context, device string) error
	// growFS increases a mounted file system to this size in bytes.
	growFS(mounted string, bytes int64) error
	// freeze blocks all writes to a mounted file system until thaw is called.
	freeze(mounted string) error
	thaw(mounted string) error
}

// loops are the kernel's loop devices.
type loops struct{}

func (loops) attach(image string) (string, error) {
	have, err := loopdev.Of(image)
	if err != nil {
		return "", err
	}
	if len(have) > 0 {
		return have[0], nil
	}
	return loopdev.Attach(image, false)
}

func (loops) detach(image string) error {
	have, err := loopdev.Of(image)
	errs := []error{err}
	for _, device := range have {
		errs = append(errs, loopdev.Free(device))
	}
	return errors.Join(errs...)
}

func (loops) grow(image string) error {
	have, err := loopdev.Of(image)
	errs := []error{err}
	for _, device := range have {
		errs = append(errs, loopdev.Grow(device))
	}
	return errors.Join(errs...)
}

// maxOutput limits the output of mkfs in an error, in bytes.
const maxOutput = 1 << 10

// clipped is a writer that keeps the first maxOutput bytes.
type clipped struct{ kept bytes.Buffer } // not embedded: ReadFrom would keep everything

// Write implements io.Writer. It never returns an error.
func (c *clipped) Write(b []byte) (int, error) {
	_, _ = c.kept.Write(b[:min(len(b), maxOutput-c.kept.Len())])
	return len(b), nil
}

// run runs a program. It returns an error if the exit code is larger than fine.
func run(ctx context.Context, fine int, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	var out clipped
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Exited() && e.ExitCode() <= fine {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(out.kept.String()))
	}
	return nil
}

func (loops) format(ctx context.Context, device string) error {
	return run(ctx, 0, "mkfs."+ext4, "-q", "-F", "-m0", device) // nothing is reserved for root
}

// fsckFixed is the exit code of e2fsck(8) after it has repaired errors.
const fsckFixed = 1

func (loops) fit(ctx context.Context, device string) error {
	if err := run(ctx, fsckFixed, "e2fsck", "-f", "-p", device); err != nil { // resize2fs requires it
		return err
	}
	return run(ctx, 0, "resize2fs", device)
}

// The ext4 superblock: offsets in bytes from the start of the device, and the magic
// number (Documentation/filesystems/ext4/super.rst of the kernel).
const (
	superAt   = 1024
	superEnd  = superAt + 1024
	blocksLow = superAt + 0x04
	blockLog  = superAt + 0x18
	magicAt   = superAt + 0x38
	blocksTop = superAt + 0x150
	magic     = 0xef53
	maxLog    = 6 // blocks of 64 KiB
)

// sizeIn returns the size of a file system in bytes. head is the beginning of its
// image. The result is 0 if the size is unknown.
func sizeIn(head []byte) int64 {
	if len(head) < superEnd || formatIn(head) != ext4 {
		return 0
	}
	blocks := uint64(binary.LittleEndian.Uint32(head[blocksTop:]))<<32 | uint64(binary.LittleEndian.Uint32(head[blocksLow:]))
	size := binary.LittleEndian.Uint32(head[blockLog:])
	if size > maxLog || blocks > maxSize {
		return 0
	}
	if n := blocks << (10 + size); n <= maxSize {
		return int64(n)
	}
	return 0
}

// looked is the number of bytes at the start of an image that formatIn examines.
const looked = 64 << 10

// beginning reads the beginning of an image.
func beginning(image string) ([]byte, error) {
	f, err := safefile.Open(image)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, looked)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
}

// formatIn returns the Format of an image with this beginning. Pods may have
// written to the image.
func formatIn(head []byte) string {
	switch {
	case len(head) >= superEnd && binary.LittleEndian.Uint16(head[magicAt:]) == magic:
		return ext4
	case len(bytes.Trim(head, "\x00")) == 0:
		return ""
	}
	return raw
}

// makeImage creates an empty sparse image.
func makeImage(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// entries returns the names in a directory of the driver.
func entries(dir string) ([]string, error) { return safefile.Names(dir, 4*maxRecords) }
