package volumemgr

import (
	"io/fs"
	"os"

	"github.com/nodewright/nodewright/internal/rmtree"
)

// Files is the part of a file system that a Manager uses. Every change of the disk goes through
// it, so that tests can simulate a failing disk and the end of the process.
type Files interface {
	// ReadDir, Lstat and Readlink work like the functions of package os. Lstat must not follow
	// links: a link in a pod's directory may lead anywhere.
	ReadDir(name string) ([]fs.DirEntry, error)
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	// MkdirAll and Symlink create the directory and the link of a block volume; for other
	// volumes, plugins create what they need.
	MkdirAll(name string, perm fs.FileMode) error
	Symlink(to, name string) error
	// Remove removes one file, link or empty directory. It never removes a mount point.
	Remove(name string) error
	// RemoveDirs and RemoveAll work like the functions of package rmtree.
	RemoveDirs(name string) error
	RemoveAll(name string) error
}

// osFiles are the files of the operating system.
type osFiles struct{}

func (osFiles) ReadDir(name string) ([]fs.DirEntry, error)   { return os.ReadDir(name) }
func (osFiles) Lstat(name string) (fs.FileInfo, error)       { return os.Lstat(name) }
func (osFiles) Readlink(name string) (string, error)         { return os.Readlink(name) }
func (osFiles) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFiles) Symlink(to, name string) error                { return os.Symlink(to, name) }
func (osFiles) Remove(name string) error                     { return os.Remove(name) }
func (osFiles) RemoveDirs(name string) error                 { return rmtree.RemoveDirs(name) }
func (osFiles) RemoveAll(name string) error                  { return rmtree.Remove(name) }
