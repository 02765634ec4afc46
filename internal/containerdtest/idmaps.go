package containerdtest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NoIDMaps returns why containers of tests cannot have user IDs of their own on this machine, or
// nil if they can. Their root file systems are mounted with mapped IDs, which a tmpfs supports from
// Linux 6.3 on.
func NoIDMaps() error {
	var fs unix.Statfs_t
	var uts unix.Utsname
	if err := errors.Join(unix.Statfs(os.TempDir(), &fs), unix.Uname(&uts)); err != nil {
		return err
	}
	release := unix.ByteSliceToString(uts.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel release %q: %w", release, err)
	}
	if fs.Type == unix.TMPFS_MAGIC && (major < 6 || major == 6 && minor < 3) {
		return fmt.Errorf("%s is a tmpfs of Linux %s", os.TempDir(), release)
	}
	return nil
}
