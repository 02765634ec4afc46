//go:build !linux

package stats

import (
	"errors"
	"io/fs"

	"github.com/nodewright/nodewright/internal/diskusage"
)

// statfs returns errors.ErrUnsupported, since it works only on Linux.
func statfs(string) (Disk, error) { return Disk{}, errors.ErrUnsupported }

// onDisk returns a file's size, in bytes.
func onDisk(info fs.FileInfo) uint64 { return uint64(info.Size()) }

func deviceOf(string) uint64 { return 0 }

func findHeld(int) func(pids []string) []diskusage.HeldFile {
	return func([]string) []diskusage.HeldFile { return nil }
}
