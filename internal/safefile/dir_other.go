//go:build !linux

package safefile

import (
	"os"
	"path/filepath"
)

// openAs opens a regular file at the path of the directory.
func (d *Dir) openAs(name string, mode int) (*os.File, error) {
	return openAs(filepath.Join(d.path, name), d.path, name, noLinks, mode)
}

// exists checks a name with the path of the directory.
func (d *Dir) exists(name string) error { return exists(d.path, name) }

// atOnce returns nil, since it needs a system call that only Linux has.
func atOnce(string, string) *Dir { return nil }

// heldBy opens the directory of root.
func heldBy(root *os.Root, _ string) (*os.File, error) { return root.Open(".") }

// onlyName returns false: the link count is unknown, and files are replaced.
func onlyName(*os.File) bool { return false }
