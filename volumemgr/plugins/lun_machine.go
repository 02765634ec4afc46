package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/volumemgr/internal/disk"
)

// lunMachine finds the disks of a node. The zero value is this machine; do not copy it.
type lunMachine struct {
	// Root is the directory that contains dev and sys.
	Root string
	// Run executes a program of the machine, such as iscsiadm or multipath. If it is nil, os/exec
	// does.
	Run Run

	calls detached.Group[struct{}]
}

// Limits and times.
const (
	maxLinks = 20_000 // entries of /dev/disk/by-path, and of directories of sysfs
	maxUUID  = 4 << 10
	maxPaths = 256 // paths to one disk
	pollTime = 500 * time.Millisecond
)

// Directories of links to disks.
const (
	byPath = "by-path"
	byID   = "by-id"
)

func (m *lunMachine) path(elements ...string) string {
	return filepath.Join(append([]string{"/", m.Root}, elements...)...)
}

// Program runs a program.
func (m *lunMachine) Program(ctx context.Context, program string, args ...string) (output string, exit int, err error) {
	if m.Run == nil {
		return disk.Program(ctx, program, args...)
	}
	return m.Run(ctx, program, args...)
}

// Links returns the kernel names (such as sdb) of the disks that have a matching link below
// /dev/disk, sorted and without duplicates. dir is byPath or byID.
func (m *lunMachine) Links(dir string, match func(name string) bool) ([]string, error) {
	at := m.path("dev/disk", dir)
	names, err := safefile.Names(at, maxLinks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		if !match(n) {
			continue
		}
		to, err := os.Readlink(filepath.Join(at, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if name := filepath.Base(to); plain(name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	if len(out) > maxPaths {
		return nil, fmt.Errorf("disk has %d paths, want at most %d", len(out), maxPaths)
	}
	return out, nil
}

// Wait calls find until find returns at least wanted disks, or limit has passed. It returns the
// last result of find.
func (m *lunMachine) Wait(ctx context.Context, wanted int, limit time.Duration, find func() ([]string, error)) ([]string, error) {
	over := time.NewTimer(limit)
	defer over.Stop()
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		found, err := find()
		if err != nil || len(found) >= wanted {
			return found, err
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-over.C:
			return find()
		case <-tick.C:
		}
	}
}

// Multipath returns the device-mapper name (such as dm-3) of the multipath device above a disk.
// It returns "" if there is none. It ignores other device-mapper devices.
func (m *lunMachine) Multipath(name string) (string, error) {
	holders, err := safefile.Names(m.path("sys/block", name, "holders"), maxLinks)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	slices.Sort(holders)
	for _, h := range holders {
		if !strings.HasPrefix(h, "dm-") {
			continue
		}
		f, err := safefile.Open(m.path("sys/block", h, "dm", "uuid"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		uuid, err := safefile.Read(f, maxUUID)
		_ = f.Close()
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(string(uuid), "mpath-") {
			return h, nil
		}
	}
	return "", nil
}

// Device returns the device to use for several paths to one disk: the multipath device on top of
// them or, if there is none, the first path.
func (m *lunMachine) Device(names []string) (string, error) {
	for _, n := range names {
		top, err := m.Multipath(n)
		if err != nil {
			return "", err
		}
		if top != "" {
			return m.path("dev", top), nil
		}
	}
	if len(names) == 0 {
		return "", errors.New("the disk has not appeared")
	}
	return m.path("dev", names[0]), nil
}

// write writes to a file of sysfs. The write may take long or block forever.
func (m *lunMachine) write(ctx context.Context, path, text string) error {
	_, err := m.calls.Do(ctx, path, func() (struct{}, error) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return struct{}{}, err
		}
		_, err = f.WriteString(text)
		return struct{}{}, errors.Join(err, f.Close())
	})
	return err
}

// Rescan makes every SCSI host search for new disks.
func (m *lunMachine) Rescan(ctx context.Context) error {
	hosts, err := safefile.Names(m.path("sys/class/scsi_host"), maxLinks)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the machine has no SCSI hosts")
	}
	errs := []error{err}
	for _, h := range hosts {
		errs = append(errs, m.write(ctx, m.path("sys/class/scsi_host", h, "scan"), "- - -"))
	}
	return errors.Join(errs...)
}

// Remove removes the paths of a disk: it flushes the multipath device on top, then flushes and
// deletes each path. A disk that others use is an error.
func (m *lunMachine) Remove(ctx context.Context, names []string) error {
	flushed := map[string]bool{}
	for _, n := range names {
		top, err := m.Multipath(n)
		if err != nil {
			return err
		}
		if top == "" || flushed[top] {
			continue
		}
		if err := m.Must(ctx, "multipath", "-f", m.path("dev", top)); err != nil {
			return err
		}
		flushed[top] = true
	}
	for _, n := range names {
		holders, err := safefile.Names(m.path("sys/block", n, "holders"), maxLinks)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		holders = slices.DeleteFunc(holders, func(h string) bool { return flushed[h] })
		if len(holders) > 0 {
			return fmt.Errorf("disk %s is in use by device %s", n, holders[0])
		}
	}
	for _, n := range names {
		if err := m.Must(ctx, "blockdev", "--flushbufs", m.path("dev", n)); err != nil {
			return err
		}
		err := m.write(ctx, m.path("sys/block", n, "device/delete"), "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// maxShown limits the bytes of a program's output in an error.
const maxShown = 512

// Must runs a program and returns an error unless it exits with 0.
func (m *lunMachine) Must(ctx context.Context, program string, args ...string) error {
	out, exit, err := m.Program(ctx, program, args...)
	if err == nil && exit != 0 {
		err = fmt.Errorf("exit %d: %s", exit, shown(out))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// shown returns the beginning of a program's output, for errors.
func shown(out string) string {
	out = strings.ToValidUTF8(strings.TrimSpace(out), "?")
	if len(out) > maxShown {
		out = out[:maxShown] + "..."
	}
	return out
}
