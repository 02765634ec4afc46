package localcri

import (
	"crypto/sha256"
	"encoding/hex"
)

// names has the names of everything that a runtime creates outside of its root directory.
// Runtimes with different root directories have different names.
type names struct {
	stateDir string // on a tmpfs
	spaces   string // prefix of network namespaces
	bridge   string // interface
	veth     string // prefix of interfaces
	table    string // nftables table
	monitors string // cgroup
}

// namesFor returns the names for a root directory.
func namesFor(rootDir string) names {
	if rootDir == defaultRootDir {
		return names{
			stateDir: "/run/nodewright", spaces: "nodewright", bridge: "nw0", veth: "nw", table: "nodewright", monitors: "/nodewright-monitors",
		}
	}
	sum := sha256.Sum256([]byte(rootDir))
	h := hex.EncodeToString(sum[:4])
	return names{
		stateDir: "/run/nodewright-" + h, spaces: "nodewright-" + h, bridge: "nw-" + h, veth: "n" + h[:3], table: "nodewright_" + h,
		monitors: "/nodewright-" + h + "-monitors",
	}
}
