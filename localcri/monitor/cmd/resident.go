//go:build linux

package main

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// span is a part of this process' memory that is mapped from its program and
// never written.
type span struct{ start, end uintptr }

// programSpans reads /proc/self/maps.
func programSpans(maps []byte) []span {
	var spans []span
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line) // addresses, permissions, offset, device, inode, path
		if len(f) < 6 || len(f[1]) != 4 || f[1][0] != 'r' || f[1][1] == 'w' || f[1][3] != 'p' || string(f[4]) == "0" {
			continue
		}
		from, to, _ := bytes.Cut(f[0], []byte{'-'})
		start, e1 := strconv.ParseUint(string(from), 16, 64)
		end, e2 := strconv.ParseUint(string(to), 16, 64)
		if e1 == nil && e2 == nil && start < end {
			spans = append(spans, span{uintptr(start), uintptr(end)})
		}
	}
	return spans
}

// release lets go the pages of the program that were needed for what was done
// last. Those that are needed again are still in the page cache, for all
// monitors; without this each would count all of the program as its own for ever.
func (l *loop) release() {
	for _, s := range l.program {
		_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, s.start, s.end-s.start, unix.MADV_DONTNEED)
	}
}
