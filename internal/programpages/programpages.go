//go:build linux

// Package programpages lets go of the pages of this process's program that are resident, which
// the kernel reads again from the file, or still has, when they are needed.
package programpages

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernelfile"
)

// A Span is a part of the address space.
type Span struct{ Start, End uintptr }

// maxMappings is how much of the list of mappings is read, in bytes, a mapping being some 700: those of the program
// are among the first.
const maxMappings = 256 << 10

// Find returns the mappings of the program's file whose pages are all as in the file. They stay so
// while the process lives. It returns nil where that is not to be had.
func Find() []Span {
	link := make([]byte, unix.PathMax)
	n, err := unix.Readlink("/proc/self/exe", link)
	if err != nil {
		return nil
	}
	smaps, err := kernelfile.Read("/proc/self/smaps", 16<<10, maxMappings)
	if err != nil {
		return nil
	}
	return clean(smaps, link[:n])
}

// Drop lets go of the pages (madvise(2): MADV_DONTNEED on a private mapping of a file).
func Drop(spans []Span) {
	for _, s := range spans {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.Start, s.End-s.Start, unix.MADV_DONTNEED)
	}
}

// clean reads a list of smaps, proc_pid_smaps(5): of each mapping a line with its addresses, permissions, offset,
// device, inode and path, and lines of a word, a colon and a value. A mapping that cannot be written may
// have been written before, and hold what is in no file: the dynamic linker's work, in a program that
// may be anywhere (-buildmode=pie). "Anonymous" counts such pages.
func clean(smaps, program []byte) []Span {
	var spans []Span
	var candidate Span
	for line := range bytes.Lines(smaps) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		fields := bytes.Fields(line)
		switch {
		case len(fields) == 0:
		case !bytes.HasSuffix(fields[0], []byte(":")):
			candidate = mapping(fields, line, program)
		case string(fields[0]) == "Anonymous:" && len(fields) == 3 && string(fields[1]) == "0" && candidate.End > candidate.Start:
			spans = append(spans, candidate)
		}
	}
	return spans
}

// mapping reads the first line of a mapping: none if it is another file's or not private, or can be written.
func mapping(fields [][]byte, line, program []byte) Span {
	if len(fields) < 6 || len(fields[1]) != 4 || fields[1][0] != 'r' || fields[1][1] != '-' || fields[1][3] != 'p' {
		return Span{}
	}
	if path, ok := bytes.CutSuffix(line, program); !ok || !bytes.HasSuffix(path, []byte(" ")) || len(bytes.Fields(path)) != 5 {
		return Span{}
	}
	from, to, _ := bytes.Cut(fields[0], []byte("-"))
	start, err1 := strconv.ParseUint(string(from), 16, 64)
	end, err2 := strconv.ParseUint(string(to), 16, 64)
	if err1 != nil || err2 != nil {
		return Span{}
	}
	return Span{uintptr(start), uintptr(end)}
}
