package nodeagent

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// RaiseLimits sets the process limits of the configuration: maxOpenFiles, the
// number of open files of the process and its children (RLIMIT_NOFILE). Programs
// call it before New; a library does not change its process. Without the field
// nothing is changed. After an error the limits are unchanged, and the program may
// continue with them.
func RaiseLimits(c *kubeletconfig.Config) error {
	if c.MaxOpenFiles <= 0 {
		return nil
	}
	want := uint64(c.MaxOpenFiles)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want}); err != nil {
		return fmt.Errorf("maxOpenFiles: %d: %w", want, err)
	}
	return nil
}
