package stats

import "golang.org/x/sys/unix"

// Statfs asks the file system that holds path.
func Statfs(path string) (Disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Disk{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Disk{}, err
	}
	size := uint64(s.Frsize)
	return Disk{
		Device: st.Dev, Capacity: s.Blocks * size, Available: s.Bavail * size, Free: s.Bfree * size,
		Inodes: s.Files, InodesFree: s.Ffree,
	}, nil
}
