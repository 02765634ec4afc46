package agent

import (
	"bufio"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelMounts is the mounter of a real node.
type kernelMounts struct{}

func (kernelMounts) under(path string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var found []string
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 5 {
			continue
		}
		// proc(5): the fifth field is the mount point.
		if m := unescapeMountinfo(fields[4]); m == path || strings.HasPrefix(m, path+"/") {
			found = append(found, m)
		}
	}
	return found, sc.Err()
}

func (kernelMounts) tmpfs(path, options string) error {
	return unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

func (kernelMounts) unmount(path string) error {
	return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}
