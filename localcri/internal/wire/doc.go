// Package wire is the language between a monitor and its client: messages of at
// most MaxMessage bytes over a unix socket of the kind SOCK_SEQPACKET, and the
// record of an exit in a file.
//
// A message is a header of eight bytes (type and version, two bytes each; four
// bytes of sequence number) and fields (two bytes of tag, four of length, the
// value); numbers are little-endian and fields of eight bytes. A field that is
// absent is zero. Fields that the reader does not know are skipped, messages are
// answered with Unsupported: so two neighbouring versions understand each other.
package wire

// Version is the version of this package's messages. A peer speaks it and the
// one before; Hello settles on the lower of both sides' newest.
const (
	Version    = 1
	MinVersion = 1
)

// Limits of what a message holds.
const (
	MaxMessage = 64 << 10 // bytes of a message
	MaxList    = 4096     // elements of a list
	MaxRecord  = 32 << 10 // bytes of a caller's record
	MaxFiles   = 3        // descriptors beside a message
)
