// Package seal encrypts what a node of a cluster keeps for a start without a
// network, and that nobody else should read from its disk: Secrets, and tokens.
//
//	s, err := seal.Open("/etc/nodewright/secret.key")
//	...
//	sealed, err := s.Seal("secret-1", plain)
//	plain, err = s.Unseal("secret-1", sealed)
//
// It is AES-256 in Galois/Counter Mode (NIST SP 800-38D), with a random nonce
// each; that a value belongs to its name is authenticated too.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
)

// mark is how an encrypted value begins. JSON begins otherwise.
var mark = []byte("nodewright sealed 1\n")

var (
	// ErrNoKey is for those who have to read an encrypted value without a key.
	ErrNoKey = errors.New("it is encrypted, and there is no key")
	// ErrWrongKey means that a value cannot be read with this key.
	ErrWrongKey = errors.New("it was encrypted with another key, or damaged")
)

const keySize = 32 // AES-256

// Sealer encrypts and decrypts. Its methods may be called from any goroutine.
type Sealer struct{ aead cipher.AEAD }

// Open reads a key: 32 bytes as they are, in hex or in base64, in a file that is
// readable for its owner alone.
func Open(file string) (*Sealer, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if p := st.Mode().Perm(); p&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o; want one for its owner alone, such as 0600", file, p)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &Sealer{aead}, nil
}

// parseKey takes 32 bytes as they are, in hex or in base64.
func parseKey(b []byte) ([]byte, error) {
	if len(b) == keySize {
		return b, nil
	}
	text := string(bytes.TrimSpace(b))
	if key, err := hex.DecodeString(text); err == nil && len(key) == keySize {
		return key, nil
	}
	if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) == keySize {
		return key, nil
	}
	return nil, fmt.Errorf("%d bytes; want a key of %d bytes, raw, in hex or in base64", len(b), keySize)
}

// Sealed tells whether a value is encrypted.
func Sealed(b []byte) bool { return bytes.HasPrefix(b, mark) }

// Seal encrypts a value. It is good under its name alone.
func (s *Sealer) Seal(name string, plain []byte) ([]byte, error) {
	out := make([]byte, len(mark)+s.aead.NonceSize(), len(mark)+s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	nonce := out[copy(out, mark):]
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return s.aead.Seal(out, nonce, plain, []byte(name)), nil
}

// Unseal decrypts a value. The error is ErrWrongKey.
func (s *Sealer) Unseal(name string, b []byte) ([]byte, error) {
	b = bytes.TrimPrefix(b, mark)
	n := s.aead.NonceSize()
	if len(b) < n {
		return nil, ErrWrongKey
	}
	plain, err := s.aead.Open(nil, b[:n], b[n:], []byte(name))
	if err != nil {
		return nil, ErrWrongKey
	}
	return plain, nil
}
