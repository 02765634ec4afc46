// Package wire is the protocol between a monitor and its client: messages of at most MaxMessage
// bytes over a unix socket of type SOCK_SEQPACKET, and the format of exit records in files.
//
// A message has a header of eight bytes (type and version, two bytes each; sequence number, four
// bytes) and fields (tag, two bytes; length, four bytes; value). Numbers are little-endian, and
// numeric fields have eight bytes. A missing field is zero. The reader skips unknown fields, and
// answers unknown messages with Unsupported, so two neighbouring versions understand each other.
package wire

// Version is the version of this package's messages. A peer supports this version and the previous
// one. Hello selects the lower one of both sides' newest versions.
const (
	Version    = 1
	MinVersion = 1
)

// Limits of a message.
const (
	MaxMessage = 64 << 10 // bytes of a message
	MaxList    = 4096     // elements of a list
	MaxRecord  = 32 << 10 // bytes of a caller's record
	MaxFiles   = 3        // descriptors beside a message
)
