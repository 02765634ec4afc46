package podsync

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"maps"
	"slices"
)

// pemType is the PEM type of a certificate (RFC 7468).
const pemType = "CERTIFICATE"

// anchors maps the SHA-256 of trusted certificates to their DER.
type anchors map[string][]byte

// add adds the certificates of a PEM text. It ignores headers, other blocks, and text in between.
func (a anchors) add(text string) {
	for rest := []byte(text); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return
		}
		if b.Type == pemType && len(b.Bytes) > 0 {
			hash := sha256.Sum256(b.Bytes)
			a[string(hash[:])] = b.Bytes
		}
	}
}

// encode returns all anchors as PEM, in the order of their hashes.
func (a anchors) encode() []byte {
	var out bytes.Buffer
	for _, hash := range slices.Sorted(maps.Keys(a)) {
		_ = pem.Encode(&out, &pem.Block{Type: pemType, Bytes: a[hash]}) // a buffer takes all
	}
	return out.Bytes()
}

func decode(text string) anchors {
	a := anchors{}
	a.add(text)
	return a
}
