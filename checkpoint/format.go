package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// A file is the magic, the length of the value (8 bytes, big endian), the
// SHA-256 of length and value, and the value.
const (
	magic      = "nodewright checkpoint 1\n"
	lengthSize = 8
	headerSize = len(magic) + lengthSize + sha256.Size
)

// encode returns the content of the file of a value. It copies the value.
func encode(value []byte) []byte {
	out := make([]byte, headerSize, headerSize+len(value))
	copy(out, magic)
	binary.BigEndian.PutUint64(out[len(magic):], uint64(len(value)))
	out = append(out, value...)
	sum := checksum(out)
	copy(out[len(magic)+lengthSize:], sum[:])
	return out
}

// checksum returns the hash of a file's length field and value. The magic needs no checksum, since
// decode compares all of it.
func checksum(file []byte) [sha256.Size]byte {
	h := sha256.New()
	_, _ = h.Write(file[len(magic) : len(magic)+lengthSize])
	_, _ = h.Write(file[headerSize:])
	return [sha256.Size]byte(h.Sum(nil))
}

// decode returns the value in a file. The value shares the file's memory. Every error is an
// ErrCorrupt. The length is checked before the checksum, which reads the whole file.
func decode(file []byte) ([]byte, error) {
	if len(file) < headerSize || !bytes.HasPrefix(file, []byte(magic)) {
		return nil, fmt.Errorf("%w: %d bytes; want at least a header", ErrCorrupt, len(file))
	}
	if n := binary.BigEndian.Uint64(file[len(magic):]); n != uint64(len(file)-headerSize) {
		return nil, fmt.Errorf("%w: value has %d bytes; want %d", ErrCorrupt, len(file)-headerSize, n)
	}
	sum := checksum(file)
	if !bytes.Equal(sum[:], file[len(magic)+lengthSize:headerSize]) {
		return nil, fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	return file[headerSize:], nil
}
