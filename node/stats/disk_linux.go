package stats

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/diskusage"
)

// statfs reads the file system of path. It may block forever, on a network file
// system whose server is gone.
func statfs(path string) (Disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Disk{}, err
	}
	// The number of the device says whether two paths are on one file system.
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Disk{}, err
	}
	// Blocks are counted in fragments (statfs(2)); Bsize is only the preferred size
	// of a transfer.
	size := uint64(s.Frsize)
	return Disk{
		Device: st.Dev, Capacity: s.Blocks * size, Available: s.Bavail * size, Free: s.Bfree * size,
		Inodes: s.Files, InodesFree: s.Ffree,
	}, nil
}

// onDisk returns the disk usage of a file in bytes. It counts blocks of 512 bytes (stat(2)), as
// du and the kubelet do. If the file system has no blocks, it returns the size of the file.
func onDisk(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Blocks) * 512
	}
	return uint64(info.Size())
}

// deviceOf returns the device number of a directory. It returns 0 if the number is not known.
func deviceOf(dir string) uint64 {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return 0
	}
	return st.Dev
}

func findHeld(most int) func(pids []string) []diskusage.HeldFile {
	return diskusage.NewHeld("", most).Of
}
