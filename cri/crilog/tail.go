package crilog

import (
	"errors"
	"io"
)

// tailStart returns the offset at which the last n lines of f begin, reading
// from its end; all of it for a negative n.
func tailStart(f io.ReaderAt, size, n int64) (int64, error) {
	if n < 0 {
		return 0, nil
	}
	if n == 0 {
		return size, nil
	}
	const block = 32 << 10
	buf := make([]byte, block)
	seen := int64(0)
	// The last byte ends the last line, be it a newline or not, and so
	// never begins one.
	for end := size - 1; end > 0; {
		start := max(0, end-block)
		b := buf[:end-start]
		if _, err := f.ReadAt(b, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != '\n' {
				continue
			}
			if seen++; seen == n {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}
