package podruntime

import "github.com/nodewright/nodewright/internal/safefile"

// maxVolumeFile is the largest size of a file with environment variables, in bytes (KEP-3721).
const maxVolumeFile = 64 << 10

// readVolumeFile is podspec.Input.ReadFile: it returns the content of the file at path below the
// directory dir. The error for a missing file matches fs.ErrNotExist.
//
// The volume's content is not trusted: neither path nor a symbolic link leads out of dir, only
// regular files are opened, and a file larger than maxVolumeFile is an error.
func readVolumeFile(dir, path string) ([]byte, error) {
	return safefile.ReadWithin(dir, path, maxVolumeFile)
}
