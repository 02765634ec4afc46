package pluginmgr

import "golang.org/x/sys/unix"

// identify returns the identity of a socket. It contains the birth time (statx(2)): inode numbers
// are reused at once, and the change time changes with the socket's mode.
func identify(path string) (identity, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MTIME, &st); err != nil {
		return identity{}, err
	}
	born := st.Mtime // of a socket, the modification time is that of its creation
	if st.Mask&unix.STATX_BTIME != 0 {
		born = st.Btime
	}
	return identity{
		device: uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), inode: st.Ino, born: born.Sec*1e9 + int64(born.Nsec),
	}, nil
}
