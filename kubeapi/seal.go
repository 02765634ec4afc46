package kubeapi

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// mark is how an encrypted value begins. JSON begins otherwise.
var mark = []byte("nodewright sealed 1\n")

var (
	// ErrNoSealKey is for those who have to read an encrypted value without a key.
	ErrNoSealKey = errors.New("record is encrypted, and there is no key")
	// ErrWrongKey means that a value cannot be read with this key.
	ErrWrongKey = errors.New("record was encrypted with another key, or damaged")
)

const keySize = 32 // AES-256

// Sealer encrypts values that a node of a cluster keeps for a start without
// a network, and that nobody else should read from its disk: Secrets, and tokens.
//
//	s, err := kubeapi.SealerOfMachine("/var/lib/nodewright/secret.key", nil)
//	...
//	sealed, err := s.Seal("secret-1", plain)
//	plain, err = s.Unseal("secret-1", sealed)
//
// It is AES-256 in Galois/Counter Mode (NIST SP 800-38D), with a random nonce
// each; that a value belongs to its name is authenticated too.
//
// Its methods may be called from any goroutine.
//
// # Keys
//
// [SealerOfMachine] has a key that is made at the first start and stays on the machine.
// It protects values that leave the machine without it: a backup of the state, a
// file that is sent to somebody, a volume that shows a directory of it. Who has the
// whole disk has the key as well: that takes a key from somewhere else, [OpenSealer], such
// as one that systemd unseals with the TPM, [SealerFromCredential].
type Sealer struct{ aead cipher.AEAD } // nil: clear

// NewClearSealer returns a Sealer that encrypts nothing: for disks that are encrypted
// themselves. Values that another has encrypted it does not read.
func NewClearSealer() *Sealer { return &Sealer{} }

// Encrypts reports whether values are encrypted, which those of Clear are not.
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

// Seal encrypts a value. It is good under its name alone.
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

// Unseal decrypts a value that was encrypted under this name, and returns one as
// it is that was not encrypted. The error is ErrWrongKey, or ErrNoKey without a key.
func (s *Sealer) Unseal(name string, b []byte) ([]byte, error) {
	if !Sealed(b) {
		return b, nil
	}
	if !s.Encrypts() {
		return nil, ErrNoSealKey
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
