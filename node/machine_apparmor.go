package node

import (
	"os"
	"strings"
)

// appArmorFile says whether the kernel enforces AppArmor profiles (AppArmor's
// wiki, Libapparmor interfaces: aa_is_enabled reads it too).
const appArmorFile = "/sys/module/apparmor/parameters/enabled"

// AppArmorEnabled reports whether the kernel enforces AppArmor profiles.
func AppArmorEnabled() bool {
	b, err := os.ReadFile(appArmorFile)
	return err == nil && strings.HasPrefix(string(b), "Y")
}
