package record

import (
	"fmt"
	"hash/crc32"
)

// Frame returns a file with one entry that has this JSON.
func Frame(body []byte) []byte {
	rest := fmt.Appendf(nil, "%016x %08x ", 0, 0)
	rest = append(rest, body...)
	out := fmt.Appendf([]byte(header), "%08x %08x ", len(rest), crc32.Checksum(rest, castagnoli))
	return append(append(out, rest...), '\n')
}
