package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// mark begins an encrypted value. JSON never begins with it.
var mark = []byte("nodewright sealed 1\n")

var (
	// ErrNoKey means that a value is encrypted and no key was given.
	ErrNoKey = errors.New("record is encrypted; no key is configured")
	// ErrWrongKey means that a value cannot be decrypted with this key.
	ErrWrongKey = errors.New("record was encrypted with another key, or damaged")
)

const keySize = 32 // AES-256

// Sealer encrypts and decrypts values with one key. Its methods may be called from
// any goroutine.
type Sealer struct{ aead cipher.AEAD } // nil: clear

// Clear returns a Sealer that does not encrypt. Use it if the disk itself is encrypted.
// It cannot decrypt values.
func Clear() *Sealer { return &Sealer{} }

// Encrypts reports whether values are encrypted. It returns false for a Sealer of Clear.
func (s *Sealer) Encrypts() bool { return s != nil && s.aead != nil }

func newSealer(key []byte) (*Sealer, error) {
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

// Sealed reports whether a value is encrypted.
func Sealed(b []byte) bool { return bytes.HasPrefix(b, mark) }

// Seal encrypts a value. It can be decrypted only under the same name.
func (s *Sealer) Seal(name string, plain []byte) ([]byte, error) {
	if !s.Encrypts() {
		return plain, nil
	}
	out := make([]byte, len(mark)+s.aead.NonceSize(), len(mark)+s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	nonce := out[copy(out, mark):]
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	return s.aead.Seal(out, nonce, plain, []byte(name)), nil
}

// Unseal decrypts a value that was encrypted under this name. It returns an unencrypted value
// unchanged. It returns ErrWrongKey if the key is not the right one, and ErrNoKey if the Sealer
// has no key.
func (s *Sealer) Unseal(name string, b []byte) ([]byte, error) {
	if !Sealed(b) {
		return b, nil
	}
	if !s.Encrypts() {
		return nil, ErrNoKey
	}
	b = b[len(mark):]
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
