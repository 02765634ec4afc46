package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// MaxExit limits the bytes of an exit record.
const MaxExit = 4 << 10

var exitMagic = [4]byte{'n', 'w', 'x', '1'}

// AppendExit appends an exit record to b: four bytes of magic, a CRC-32C of the rest, and a
// message of type Exited.
func AppendExit(b []byte, m Message) ([]byte, error) {
	m.Type, m.Seq = Exited, 0
	body, err := m.Append(nil)
	if err != nil || len(body)+8 > MaxExit {
		return b, ErrTooLong
	}
	b = append(b, exitMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, body...), nil
}

// DecodeExit decodes an exit record. The error is ErrMalformed.
func DecodeExit(b []byte) (Message, error) {
	if len(b) < 8 || len(b) > MaxExit || [4]byte(b) != exitMagic {
		return Message{}, ErrMalformed
	}
	if crc32.Checksum(b[8:], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(b[4:]) {
		return Message{}, ErrMalformed
	}
	m, err := Decode(b[8:])
	if err != nil || m.Type != Exited {
		return Message{}, ErrMalformed
	}
	return m, nil
}
