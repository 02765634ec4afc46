package node

import (
	"os"
	"strings"
)

// appArmorFile has Y if the kernel enforces AppArmor profiles. aa_is_enabled reads it too
// (AppArmor's wiki, Libapparmor interfaces).
const appArmorFile = "/sys/module/apparmor/parameters/enabled"

// AppArmorEnabled reports whether the kernel enforces AppArmor profiles.
func AppArmorEnabled() bool {
	b, err := os.ReadFile(appArmorFile)
	return err == nil && strings.HasPrefix(string(b), "Y")
}
