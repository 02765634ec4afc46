package facts

import (
	"errors"
	"io"
	"io/fs"
	"syscall"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// Users returns the content of /etc/passwd and /etc/group of an image, up to [ocispec.MaxUsers]
// bytes of each. For a file that is missing or not a regular file, it returns nil. Links are
// resolved within rootfs.
func Users(rootfs string) (passwd, group []byte, err error) {
	if passwd, err = table(rootfs, "etc/passwd"); err != nil {
		return nil, nil, err
	}
	group, err = table(rootfs, "etc/group")
	return passwd, group, err
}

func table(rootfs, name string) ([]byte, error) {
	f, err := safefile.OpenRooted(rootfs, name)
	for _, no := range []error{fs.ErrNotExist, safefile.ErrNotRegular, syscall.ENOTDIR, syscall.ELOOP} {
		if errors.Is(err, no) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, ocispec.MaxUsers))
}
