package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxIfname = 15 // IFNAMSIZ without the NUL
	maxTable  = 64 // of nftables' 255, so that messages stay readable
	vethHex   = 11 // digits of a veth's name after the prefix
)

// validIfname reports whether a name is one for interfaces. It is stricter than
// the kernel, so that names are safe in rules, paths and messages.
func validIfname(name string) bool {
	return validName(name, maxIfname) && name != "all" && name != "default"
}

func validTable(name string) bool { return validName(name, maxTable) }

func validName(name string, most int) bool {
	if name == "" || len(name) > most {
		return false
	}
	for _, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", c) {
			return false
		}
	}
	return name[0] != '-'
}

// vethName is the name of the node's end of an attachment's veth.
func vethName(prefix, id string) string {
	sum := sha256.Sum256([]byte(id))
	return prefix + hex.EncodeToString(sum[:])[:vethHex]
}

// isVethName reports whether vethName makes such names.
func isVethName(prefix, name string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && len(digits) == vethHex && strings.Trim(digits, "0123456789abcdef") == ""
}
