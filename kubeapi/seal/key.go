package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/safefile"
)

// maxKeyFile limits the file of a key, in bytes: a key in hex, and some white space.
const maxKeyFile = 1 << 10

// ErrDamaged means that a file exists but has no key.
var ErrDamaged = errors.New("the file has no key")

// Open reads a key of 32 bytes, raw, in hex or in base64, from a regular file. The
// file must belong to root, or to the user of this process, and no other user may
// read or write it. A link is followed.
func Open(file string) (*Sealer, error) {
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", file, err)
	}
	f, err := safefile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", file, err)
	}
	if err := private(info.Mode(), ownerOf(info), os.Geteuid()); err != nil {
		return nil, fmt.Errorf("read key file %s: %w", file, err)
	}
	b, err := safefile.Read(f, maxKeyFile)
	if errors.Is(err, safefile.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", file, err)
	}
	key, err := parseKey(b)
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", file, err)
	}
	return newSealer(key)
}

// Machine reads the key of this machine, and creates it if there is none: a file
// readable only by its owner, which is synced when Machine returns. Its directory must
// exist. A file without a valid key is renamed to <file>.corrupt-N, and a new key is
// created; values that were encrypted with the old key cannot be decrypted any more. In
// this case lost, if not nil, is called with the new name of the file and the reason. A
// file that other users may read or write is an error.
//
// No other process may call it for the same file at the same time.
func Machine(file string, lost func(setAside string, err error)) (*Sealer, error) {
	s, err := Open(file)
	switch {
	case errors.Is(err, ErrDamaged), errors.Is(err, safefile.ErrNotRegular):
		aside, asideErr := setAside(file)
		if asideErr != nil {
			return nil, errors.Join(err, asideErr)
		}
		if lost != nil {
			lost(aside, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	if err := makeKey(file); err != nil {
		return nil, fmt.Errorf("make key file %s: %w", file, err)
	}
	return Open(file)
}

// private returns an error if the mode or the owner of a key's file is wrong.
func private(mode fs.FileMode, owner, self int) error {
	if p := mode.Perm(); p&0o077 != 0 {
		return fmt.Errorf("mode is %04o; want one for its owner alone, such as 0600", p)
	}
	if owner != 0 && owner != self {
		return fmt.Errorf("owner is user %d; want root, or user %d that the agent runs as", owner, self)
	}
	return nil
}

// parseKey parses a key of 32 bytes: raw, in hex or in base64.
func parseKey(b []byte) ([]byte, error) {
	if len(b) == keySize && !bytes.Equal(b, make([]byte, keySize)) { // a crash may leave zeros
		return b, nil
	}
	text := string(bytes.TrimSpace(b))
	if key, err := hex.DecodeString(text); err == nil && len(key) == keySize {
		return key, nil
	}
	if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) == keySize {
		return key, nil
	}
	return nil, fmt.Errorf("%w: %d bytes; want a key of %d bytes, raw and not all zero, in hex or in base64", ErrDamaged, len(b), keySize)
}
