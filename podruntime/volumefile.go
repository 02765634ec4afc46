package podruntime

import "github.com/nodewright/nodewright/internal/safefile"

// maxVolumeFile is how large a file with variables may be, in bytes (KEP-3721).
const maxVolumeFile = 64 << 10

// readVolumeFile is podspec.Input.ReadFile: it returns the content of the file
// at path below the directory dir. A file that is not there is an
// fs.ErrNotExist.
//
// Whoever wrote the volume is not trusted: neither path nor a symbolic link
// leads out of dir, only regular files are opened, and nothing larger than
// maxVolumeFile comes back.
func readVolumeFile(dir, path string) ([]byte, error) {
	return safefile.ReadWithin(dir, path, maxVolumeFile)
}
