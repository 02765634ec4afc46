package crilog

import (
	"errors"
	"io"
)

// tailStart returns the offset at which the last n lines of f begin. It returns 0 if n is
// negative. It reads f from the end, at most n times maxLine bytes.
func tailStart(f io.ReaderAt, size, n int64) (int64, error) {
	if n < 0 {
		return 0, nil
	}
	if n == 0 {
		return size, nil
	}
	const block = 32 << 10
	buf := make([]byte, block)
	seen, first := int64(0), int64(0)
	if n < size/maxLine {
		first = size - n*maxLine
	}
	// The last byte ends the last line, whether it is a newline or not, and so never begins a line.
	for end := size - 1; end > first; {
		start := max(first, end-block)
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
	return first, nil
}
