package network

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/nodewright/nodewright/internal/durable"
)

// nameLength is the number of hexadecimal digits in the name of a namespace.
const nameLength = 32

// spaceName returns the name of an ID's namespace. It ends in the first digits of the ID if that is
// a hexadecimal number that is long enough, like the IDs of sandboxes, and otherwise in the first
// digits of the ID's SHA-256.
func spaceName(prefix, id string) string {
	digits := id
	if !isHex(id) || len(id) < nameLength {
		sum := sha256.Sum256([]byte(id))
		digits = hex.EncodeToString(sum[:])
	}
	return prefix + "-" + digits[:nameLength]
}

// isSpaceName reports whether a name has the form of spaceName.
func isSpaceName(prefix, name string) bool {
	digits, ok := strings.CutPrefix(name, prefix+"-")
	return ok && len(digits) == nameLength && isHex(digits)
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// The suffixes of an ID's files: the record, which may be synced to the disk, and the
// progress, which never is.
const (
	recordSuffix   = ".record"
	progressSuffix = ".progress"
)

// fileName returns the name of an ID's files, without the suffix. It is the ID itself, so that a
// person can find the files, unless the ID looks like the name of a damaged file that was
// renamed.
func fileName(id string) string {
	if !strings.Contains(id, durable.AsideSuffix) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// spacePath returns the path of the namespace of an ID.
func (c *Config) spacePath(id string) string {
	return filepath.Join(c.NetnsDir, spaceName(c.Prefix, id))
}
