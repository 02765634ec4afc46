//go:build !linux

package pluginmgr

import "os"

// identify returns the identity of a socket: the time of its last change, which is that of
// its creation.
func identify(path string) (identity, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return identity{}, err
	}
	return identity{born: info.ModTime().UnixNano()}, nil
}
