// Package bootid reads the ID of the machine's current boot.
package bootid

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// path is the file of random(4) with the boot ID, a UUID in text form. The kernel
// generates a new ID at each boot.
const path = "proc/sys/kernel/random/boot_id"

// maxID is the maximum length of an ID in bytes; a UUID has 36.
const maxID = 128

// Read returns the boot ID from files, such as os.DirFS("/"). If it succeeds, the ID is not
// empty.
func Read(files fs.FS) (string, error) {
	f, err := files.Open(path)
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxID+1))
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	if len(b) > maxID {
		return "", fmt.Errorf("boot ID: /%s has more than %d bytes", path, maxID)
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", errors.New("boot ID: /" + path + " is empty")
	}
	return id, nil
}
