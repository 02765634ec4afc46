package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Statfs returns what the file system says that path is on.
func Statfs(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := int64(st.Bsize) //nolint:unconvert // 32 bits on some machines
	if st.Frsize > 0 {
		block = int64(st.Frsize) //nolint:unconvert // 32 bits on some machines
	}
	u := Usage{
		Capacity: int64(st.Blocks) * block, Used: int64(st.Blocks-st.Bfree) * block, Available: int64(st.Bavail) * block,
		Inodes: int64(st.Files), InodesUsed: int64(st.Files - st.Ffree), InodesFree: int64(st.Ffree),
		At: time.Now(),
	}
	return u, nil
}

// fsxattr is the kernel's struct fsxattr (linux/fs.h).
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is the kernel's struct if_dqblk (linux/quota.h).
type dqblk struct {
	hardLimit, softLimit, space            uint64 // limits in KiB, space in bytes
	inodeHardLimit, inodeSoftLimit, inodes uint64
	blockTime, inodeTime                   uint64
	valid                                  uint32
	_                                      uint32
}

// Constants of linux/fs.h, linux/quota.h; the system call takes a descriptor
// since Linux 5.14.
const (
	fsGetXattr = 0x801c581f // FS_IOC_FSGETXATTR
	getQuota   = 0x800007   // Q_GETQUOTA
	prjQuota   = 2          // PRJQUOTA
)

// Quota returns what the kernel has counted for the project that dir belongs
// to. Capacity and Available are those of the file system, or of the project's
// limit if it has a smaller one.
func Quota(dir string) (Usage, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var attr fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsGetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 || attr.projid == 0 {
		return Usage{}, ErrNoQuota
	}
	var q dqblk
	cmd := uintptr(getQuota<<8 | prjQuota)
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), cmd, uintptr(attr.projid), uintptr(unsafe.Pointer(&q)), 0, 0); errno != 0 {
		return Usage{}, fmt.Errorf("%w: %w", ErrNoQuota, errno)
	}
	u, err := Statfs(dir)
	if err != nil {
		return Usage{}, err
	}
	u.Used, u.InodesUsed = int64(q.space), int64(q.inodes)
	if limit := int64(q.hardLimit) * 1024; limit > 0 && limit < u.Capacity {
		u.Capacity, u.Available = limit, min(u.Available, max(limit-u.Used, 0))
	}
	return u, nil
}

// Walk adds up what dir and everything below it takes: blocks and not sizes,
// a file with several links once, nothing of other file systems. What vanishes
// meanwhile does not count. Capacity and Available are those of the file
// system. It returns ErrTooMuch when it meets a limit.
func Walk(ctx context.Context, dir string, limits Limits) (Usage, error) {
	limits = limits.withDefaults()
	ctx, stop := context.WithTimeout(ctx, limits.Time)
	defer stop()
	u, err := Statfs(dir)
	if err != nil {
		return Usage{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return Usage{}, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	w := walk{ctx: ctx, limits: limits, dev: uint64(st.Dev), linked: map[uint64]bool{}} //nolint:unconvert // 32 bits on some machines
	w.count(&st)
	if err := w.dir(dir); err != nil {
		return Usage{}, err
	}
	u.Used, u.InodesUsed, u.At = w.bytes, w.files, time.Now()
	return u, nil
}

type walk struct {
	ctx          context.Context
	limits       Limits
	dev          uint64
	linked       map[uint64]bool // inodes with several links that were counted
	bytes, files int64
}

func (w *walk) count(st *unix.Stat_t) {
	w.files++
	w.bytes += st.Blocks * 512 // stat(2)
}

// batch is how many names are read at a time.
const batch = 1000

func (w *walk) dir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	// Only names are kept while directories below are looked at: a tree may
	// be deeper than there are files to open.
	var below []string
	for {
		names, err := d.Readdirnames(batch)
		for _, name := range names {
			var st unix.Stat_t
			serr := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
			if serr != nil || uint64(st.Dev) != w.dev { //nolint:unconvert // 32 bits on some machines
				continue
			}
			isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
			if st.Nlink > 1 && !isDir {
				if w.linked[st.Ino] {
					continue
				}
				w.linked[st.Ino] = true
			}
			w.count(&st)
			if isDir {
				below = append(below, name)
			}
		}
		if lerr := w.rest(len(names)); lerr != nil {
			_ = d.Close()
			return lerr
		}
		if err != nil || len(names) == 0 {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrNotExist) {
				_ = d.Close()
				return err
			}
			break
		}
	}
	_ = d.Close()
	for _, name := range below {
		if err := w.dir(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// rest stops at a limit, and lets others have the disk.
func (w *walk) rest(n int) error {
	if w.files > int64(w.limits.Files) {
		return fmt.Errorf("%w: more than %d", ErrTooMuch, w.limits.Files)
	}
	if err := w.ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrTooMuch, err)
	}
	if n == batch {
		time.Sleep(w.limits.Pause)
	}
	return nil
}
