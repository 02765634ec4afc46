//go:build linux

package image

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
)

// The list of a layer's files is made while they are written: for each its
// size and CRC-32C. A file that comes again has the last line; a line may also
// say that a name, and all below it, is gone.
const (
	sumFile byte = 1
	sumGone byte = 2
)

// sumHead is how many bytes a line has before its path.
const sumHead = 1 + 8 + 4 + 2

// sumWriter writes the list. Its caller flushes it.
type sumWriter struct{ *bufio.Writer }

// newSumWriter returns a writer of lines to w.
func newSumWriter(w io.Writer) *sumWriter { return &sumWriter{bufio.NewWriterSize(w, 16<<10)} }

// file adds a file of so many bytes with a sum.
func (w *sumWriter) file(path string, size int64, sum uint32) error {
	return w.line(sumFile, path, size, sum)
}

// gone takes back all lines of a name and of what is below it.
func (w *sumWriter) gone(path string) error { return w.line(sumGone, path, 0, 0) }

// line writes kind, size, sum, length of the path, and path, in little-endian. A path
// fits in 16 bits: cleanName allows maxPath bytes.
func (w *sumWriter) line(kind byte, path string, size int64, sum uint32) error {
	var head [sumHead]byte
	head[0] = kind
	binary.LittleEndian.PutUint64(head[1:], uint64(size))
	binary.LittleEndian.PutUint32(head[9:], sum) //
	binary.LittleEndian.PutUint16(head[13:], uint16(len(path)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.WriteString(path)
	return err
}

// sumLine is a line as it is read.
type sumLine struct {
	kind byte
	size int64
	sum  uint32
	path string
}

// readSums calls each for every line. A list that is cut or malformed is an error. n is
// the number of the line, from 0. A list that was cut between two lines cannot be told
// from a whole one.
func readSums(r io.Reader, each func(n int, l sumLine) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for n := 0; ; n++ {
		var head [sumHead]byte
		if _, err := io.ReadFull(br, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		l := sumLine{kind: head[0], size: int64(binary.LittleEndian.Uint64(head[1:])), sum: binary.LittleEndian.Uint32(head[9:])}
		length := binary.LittleEndian.Uint16(head[13:])
		// A list may be damaged like any other file: no length of it is trusted.
		if l.kind != sumFile && l.kind != sumGone || l.size < 0 || length == 0 || length > maxPath {
			return errors.New("list of files is malformed")
		}
		path := make([]byte, length)
		if _, err := io.ReadFull(br, path); err != nil {
			return err
		}
		l.path = string(path)
		if err := each(n, l); err != nil {
			return err
		}
	}
}

// verify compares the files of a layer with their list. The first one that
// differs is the error. stop is asked before each file. It reads the list twice: the
// first time to learn which line of a path counts, so that a layer with a million files
// needs a few bytes for each of them. A collision of two hashes leaves a file unchecked
// this time; the seed is another one each time. Its time grows with the lines and the
// depth of their paths, whatever the archive was.
func verify(dir, list string, most int64, stop func() error) error {
	f, err := safefile.Open(list)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	seed := maphash.MakeSeed()
	// The last lines of files, and of names that are gone, by the hashes of their paths.
	last, gone := map[uint64]int32{}, map[uint64]int32{}
	if err := readSums(f, func(n int, l sumLine) error {
		// A damaged list must not fill the memory. A file may have two lines: one of the
		// archive, one of what was copied up.
		if int64(n) >= 2*most || int64(len(gone)) > most {
			return errors.New("list of files is malformed")
		}
		if l.kind == sumGone {
			gone[maphash.String(seed, l.path)] = int32(n)
			delete(last, maphash.String(seed, l.path))
			return nil
		}
		last[maphash.String(seed, l.path)] = int32(n)
		return nil
	}); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	// Relative to the tree, so that a link in a damaged layer leads nowhere.
	t, err := openTree(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	buf := make([]byte, 128<<10)
	return readSums(f, func(n int, l sumLine) error {
		if err := stop(); err != nil {
			return err
		}
		if at, ok := last[maphash.String(seed, l.path)]; !ok || int(at) != n {
			return nil
		}
		// A directory that the archive replaced took the files in it along.
		for dir, _ := split(l.path); dir != "."; dir, _ = split(dir) {
			if int(gone[maphash.String(seed, dir)]) > n {
				return nil
			}
		}
		if err := t.compare(l, buf); err != nil {
			return fmt.Errorf("%s: %w", shown(l.path), err)
		}
		return nil
	})
}

// compare compares one file with its line; buf is scratch space.
func (t *tree) compare(l sumLine, buf []byte) error {
	dir, base := split(l.path)
	at, err := t.dir(dir)
	if err != nil {
		return err
	}
	st, err := stat(at, base)
	if err != nil {
		return err
	}
	// Type and size come first: the stat costs nothing, and no FIFO is opened.
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != l.size {
		return fmt.Errorf("has %d bytes, mode %o; want a file of %d", st.Size, st.Mode, l.size)
	}
	fd, err := unix.Openat(at, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer func() { _ = f.Close() }()
	// CRC-32C finds what disks and power cuts do. It is no protection against somebody
	// who changes files on purpose; digests of the pull are.
	var sum uint32
	for {
		n, err := f.Read(buf)
		sum = crc32.Update(sum, castagnoli, buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if sum != l.sum {
		return fmt.Errorf("sum is %08x, want %08x", sum, l.sum)
	}
	return nil
}
