package scratch

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// NoSwap reports whether tmpfs supports the mount option noswap. This needs Linux 6.4 and
// the initial user namespace (tmpfs(5)).
func NoSwap() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && noSwap(unix.ByteSliceToString(u.Release[:]), string(ids))
}

// noSwap returns the result of NoSwap for a kernel release and the process's map of user IDs. Only
// in the initial user namespace does the map give each ID itself.
func noSwap(release, ids string) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		minor = rest[:i]
	}
	ma, err1 := strconv.Atoi(major)
	mi, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil || ma < 6 || ma == 6 && mi < 4 {
		return false
	}
	return strings.Join(strings.Fields(ids), " ") == "0 0 4294967295"
}
