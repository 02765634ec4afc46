package podsource

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

// sealMark is how an encrypted value begins. Others begin with a brace.
var sealMark = []byte("nodewright sealed 1\n")

var (
	errNoKey    = errors.New("there is no key")
	errWrongKey = errors.New("it was encrypted with another key, or damaged")
)

const keySize = 32 // AES-256

// sealer encrypts values with AES-256 in Galois/Counter Mode (NIST SP 800-38D),
// with a random nonce each; that a value belongs to its key of the Memory is
// authenticated too.
type sealer struct{ aead cipher.AEAD }

// newSealer reads the key.
func newSealer(file string) (*sealer, error) {
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
	return &sealer{aead}, nil
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

func sealed(b []byte) bool { return bytes.HasPrefix(b, sealMark) }

func (s *sealer) seal(name string, plain []byte) ([]byte, error) {
	out := make([]byte, len(sealMark)+s.aead.NonceSize(), len(sealMark)+s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	nonce := out[copy(out, sealMark):]
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return s.aead.Seal(out, nonce, plain, []byte(name)), nil
}

func (s *sealer) open(name string, b []byte) ([]byte, error) {
	b = bytes.TrimPrefix(b, sealMark)
	n := s.aead.NonceSize()
	if len(b) < n {
		return nil, errWrongKey
	}
	plain, err := s.aead.Open(nil, b[:n], b[n:], []byte(name))
	if err != nil {
		return nil, errWrongKey
	}
	return plain, nil
}
