package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxIfname = 15 // IFNAMSIZ without the NUL
	maxTable  = 64 // of nftables' 255, so that messages stay readable
	// vethHex leaves 4 bytes of maxIfname for the prefix.
	vethHex = 11 // digits of a veth's name after the prefix
)

// validIfname reports whether a name is allowed for an interface. It is stricter than
// the kernel, so that names are safe in rules, paths and messages. "all" and "default"
// are not interfaces below /proc/sys/net/ipv4/conf.
func validIfname(name string) bool {
	return validName(name, maxIfname) && name != "all" && name != "default"
}

// validTable reports whether a name is allowed for the table.
func validTable(name string) bool { return validName(name, maxTable) }

// validName reports whether a name has 1 to limit characters of [a-zA-Z0-9_-], and does not begin
// like an option.
func validName(name string, limit int) bool {
	if name == "" || len(name) > limit {
		return false
	}
	for _, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", c) {
			return false
		}
	}
	return name[0] != '-'
}

// vethName returns the name of the node's end of an attachment's veth. It is computed from the ID,
// so that an interface can be removed even if its record is lost. 11 digits are 44 bits, so two
// pods of a node do not get the same name.
func vethName(prefix, id string) string {
	sum := sha256.Sum256([]byte(id))
	return prefix + hex.EncodeToString(sum[:])[:vethHex]
}

// isVethName reports whether a name has the form of vethName: a pod's interface.
func isVethName(prefix, name string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && len(digits) == vethHex && strings.Trim(digits, "0123456789abcdef") == ""
}
