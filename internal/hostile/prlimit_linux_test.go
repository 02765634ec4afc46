//go:build !race

package hostile

import "golang.org/x/sys/unix"

// prlimit bounds the addresses of a process.
func prlimit(pid int, bytes uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
}
