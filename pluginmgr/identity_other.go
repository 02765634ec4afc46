//go:build !linux

package pluginmgr

import "os"

// identify returns the identity of a socket. It contains the modification time, which for a
// socket is the time of its creation.
func identify(path string) (identity, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return identity{}, err
	}
	return identity{born: info.ModTime().UnixNano()}, nil
}
