package cmdline

import (
	"embed"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed scripts
var scripts embed.FS

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Shells are the shells that [Script] supports.
var Shells = []string{"bash", "zsh", "fish"}

// Script returns the completion script of a shell for a program; its last path
// element is the command's name.
func Script(shell, program string) (string, error) {
	b, err := scripts.ReadFile("scripts/complete." + shell)
	if err != nil {
		return "", fmt.Errorf("shell %q: want %s", shell, strings.Join(Shells, ", "))
	}
	name := filepath.Base(program)
	if !plainName.MatchString(name) {
		return "", fmt.Errorf("program %q: want a name of letters, digits, dots and dashes", name)
	}
	identifier := strings.NewReplacer(".", "_", "-", "_").Replace(name)
	return strings.NewReplacer("PROGRAM", name, "IDENTIFIER", identifier).Replace(string(b)), nil
}
