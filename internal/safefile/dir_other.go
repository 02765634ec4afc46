//go:build !linux

package safefile

import (
	"os"
	"path/filepath"
)

// openAs opens a regular file by the path of the directory.
func (d *Dir) openAs(name string, mode int) (*os.File, error) {
	return openAs(filepath.Join(d.path, name), d.path, name, noLinks, mode)
}

// exists checks a name by the path of the directory.
func (d *Dir) exists(name string) error { return exists(d.path, name) }

// atOnce always returns nil here: it needs a system call of Linux.
func atOnce(string, string) *Dir { return nil }

// heldBy opens the directory of root.
func heldBy(root *os.Root, _ string) (*os.File, error) { return root.Open(".") }

// onlyName always returns false here, since the number of links is unknown. Write then replaces
// the file.
func onlyName(*os.File) bool { return false }
