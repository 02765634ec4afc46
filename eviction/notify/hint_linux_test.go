package notify

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRefusedWindowNamesTheCapability(t *testing.T) {
	for _, tc := range []struct {
		window time.Duration
		err    error
		hint   bool
	}{
		{time.Second, unix.EINVAL, true}, {2 * time.Second, unix.EINVAL, false}, {time.Second, unix.EBUSY, false},
	} {
		if got := PSI("/proc/pressure/memory", 0, tc.window).(psi).hint(tc.err); strings.Contains(got, "CAP_SYS_RESOURCE") != tc.hint {
			t.Errorf("%v, %v: %q", tc.window, tc.err, got)
		}
	}
}
