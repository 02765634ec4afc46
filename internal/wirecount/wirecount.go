// Package wirecount counts the fields of a protobuf message before it is decoded. A
// megabyte can encode half a million empty messages, each of which takes a hundred
// bytes or more after decoding: receivers of untrusted messages have to limit the
// number of fields as well as the size.
package wirecount

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooMany means that a message has more fields than allowed.
var ErrTooMany = errors.New("message has too many fields")

// Shape has the numbers of the fields that contain messages, with the shapes of
// those messages. Other fields are counted as one.
type Shape map[uint64]Shape

// Check counts the fields of an encoded message, including those of nested
// messages. If there are more than limit, the error is [ErrTooMany]. In a malformed
// message it counts the fields before the error: the decoder stops there too.
func Check(message []byte, s Shape, limit int) error {
	n := 0
	count(message, s, limit, &n)
	if n > limit {
		return fmt.Errorf("%w: want at most %d", ErrTooMany, limit)
	}
	return nil
}

// The wire types of the protobuf encoding. Groups are not part of the language any
// more; their starts and ends are counted like fields.
const (
	varint     = 0
	fixed64    = 1
	bytes      = 2
	groupStart = 3
	groupEnd   = 4
	fixed32    = 5
)

// count stops when there are more than limit.
func count(b []byte, s Shape, limit int, n *int) {
	for len(b) > 0 && *n <= limit {
		tag, size := binary.Uvarint(b)
		if size <= 0 {
			return
		}
		b = b[size:]
		*n++
		switch tag & 7 {
		case varint:
			_, size = binary.Uvarint(b)
		case fixed64:
			size = 8
		case fixed32:
			size = 4
		case groupStart, groupEnd:
			size = 0
		case bytes:
			length, prefix := binary.Uvarint(b)
			if prefix <= 0 || length > uint64(len(b)-prefix) {
				return
			}
			size = prefix + int(length) //nolint:gosec // no more than there is
			if within, ok := s[tag>>3]; ok {
				count(b[prefix:size], within, limit, n)
			}
		default:
			return
		}
		if size < 0 || size == 0 && tag&7 == varint || size > len(b) {
			return
		}
		b = b[size:]
	}
}
