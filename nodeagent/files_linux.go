package nodeagent

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// RaiseLimits gives this process what the configuration says of it: maxOpenFiles, the
// number of files that it, and what it starts, may have open (RLIMIT_NOFILE). It is
// for programs, which call it before New; a library leaves its process alone. Without
// the field nothing is changed. An error leaves the limits as they were: whoever may
// not raise the hard limit may go on with it.
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
