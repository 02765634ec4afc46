// Package wirecount counts the fields of an encoded protobuf message. A megabyte can encode
// half a million empty messages, each of which needs a hundred bytes or more when decoded.
// Therefore receivers of untrusted messages have to limit the number of fields as well as
// the size.
package wirecount

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooMany means that a message has more fields than allowed.
var ErrTooMany = errors.New("message has too many fields")

// Shape describes a message type: it maps the number of each field that contains a message
// to the shape of that message. Other fields count as one.
type Shape map[uint64]Shape

// Check returns [ErrTooMany] if an encoded message has more than limit fields, including
// the fields of nested messages. In a malformed message it counts only the fields before
// the malformed part; a decoder stops there as well.
func Check(message []byte, s Shape, limit int) error {
	n := 0
	count(message, s, limit, &n)
	if n > limit {
		return fmt.Errorf("%w: want at most %d", ErrTooMany, limit)
	}
	return nil
}

// The wire types of the protobuf encoding. Start and end of a group, a deprecated feature,
// count as one field each.
const (
	varint     = 0
	fixed64    = 1
	bytes      = 2
	groupStart = 3
	groupEnd   = 4
	fixed32    = 5
)

// count adds the number of fields in b to n. It stops when n exceeds limit.
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
