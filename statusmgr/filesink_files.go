package statusmgr

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Names of files. They are for people, who look for a namespace and a name, and
// safe for any file system, whatever a manifest holds.

const suffix = ".json"

// Parts of a file's name are cut to these lengths in bytes, so that the name with its suffixes has
// at most the 255 bytes that file systems allow.
const (
	maxNamespace = 63
	maxName      = 110
	maxUID       = 50
)

// fileName returns the name of a pod's file, which is different for each pod. Namespace and name
// are cut independently of the UID, so that the UID can be read from the file's name.
func fileName(pod *v1.Pod) string {
	return safe(pod.Namespace, maxNamespace) + "_" + safe(pod.Name, maxName) + "_" + safe(string(pod.UID), maxUID) + suffix
}

// safe converts s to a part of a file name. Letters, digits, '-' and '.' stay, except a '.' at the
// beginning; all other bytes become %XX. A result longer than limit is cut, and ends with '~' and a
// hash.
func safe(s string, limit int) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c == '-' || c == '.' && i > 0 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= limit {
		return b.String()
	}
	// The hash is that of the whole name, and not only of the part that is cut off. Its first 8
	// bytes keep long names with the same beginning apart.
	sum := sha256.Sum256([]byte(s))
	mark := "~" + hex.EncodeToString(sum[:8])
	return b.String()[:limit-len(mark)] + mark
}
