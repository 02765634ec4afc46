package pluginmgr

import "golang.org/x/sys/unix"

// identify asks for the time of birth, since inode numbers are used again at
// once and plugins change the mode of their sockets (statx(2)).
func identify(path string) (identity, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MTIME, &st); err != nil {
		return identity{}, err
	}
	born := st.Mtime // of a socket: when it was made
	if st.Mask&unix.STATX_BTIME != 0 {
		born = st.Btime
	}
	return identity{
		device: uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), inode: st.Ino, born: born.Sec*1e9 + int64(born.Nsec),
	}, nil
}
