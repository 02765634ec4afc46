//go:build linux

package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow is the memory limit for decoding a zstd stream, as recommended by RFC 8878.
const zstdWindow = 8 << 20

// The first bytes of streams: RFC 1952, section 2.3.1, and RFC 8878, section 3.1.1.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// decompress detects gzip or zstd by the first bytes, not by the media type, and decompresses.
// Other content is returned unchanged. The caller calls done to free memory.
func decompress(r io.Reader) (out io.Reader, done func(), err error) {
	// The returned reader begins at the first byte: Peek consumes none.
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(4)
	// A stream shorter than four bytes is returned unchanged; the caller judges it.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, fmt.Errorf("read gzip header: %w", err)
		}
		return z, func() { _ = z.Close() }, nil
	// The second kind is a skippable frame (RFC 8878, section 3.1.2), which some tools
	// put first: 0x184D2A50 to 0x184D2A5F, little-endian.
	case bytes.HasPrefix(head, zstdMagic), len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18}):
		// One goroutine and little memory for each stream: unpackJobs limits the number of
		// streams. If a stream needs more than zstdWindow, the first read fails.
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("read zstd header: %w", err)
		}
		return z, z.Close, nil
	}
	return br, func() {}, nil
}

// bounded reads up to a limit. If there are more bytes, the error is errLimit.
type bounded struct {
	r    io.Reader
	left int64
	what string
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		// A stream that ends exactly at the limit is allowed: only one more byte shows the
		// difference.
		var one [1]byte
		if n, err := io.ReadFull(b.r, one[:]); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("%w: %s is larger than allowed", errLimit, b.what)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
