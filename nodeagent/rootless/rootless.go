package rootless

import (
	"os"
	"path/filepath"
)

// Config configures [Enter].
type Config struct {
	// RootDir is the absolute root directory of the agent. It is created if it does not exist.
	RootDir string
	// Ports are the TCP and UDP ports of the machine that lead to the namespaces: a list such as
	// "8080,30000-30100". If it is "", these are the ports that listen in the namespaces, at any time; this
	// needs pasta 2024_10_30 or later. Connections end if it changes.
	Ports string
}

// marker is a file in /run of the namespaces.
const marker = "/run/nodewright-rootless"

// Inside reports whether this process is root in namespaces that [Enter] made.
func Inside() bool {
	_, err := os.Lstat(marker)
	return err == nil && os.Geteuid() == 0
}

// RootDir returns the default root directory of the agents of an ordinary user, below
// $XDG_DATA_HOME or ~/.local/share (XDG Base Directory Specification). It is "" for root, unless root
// is a user in namespaces, and for a user without a home directory.
func RootDir() string {
	if os.Geteuid() == 0 && !Inside() {
		return ""
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "nodewright")
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "nodewright")
	}
	return ""
}
