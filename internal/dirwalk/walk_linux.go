package dirwalk

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// bufferSize is the size of one read of a directory, in bytes.
	bufferSize = 8 << 10
	// maxIdle limits the successive reads of a directory that return no entry.
	maxIdle = 100
	// maxShown limits the bytes of a path in an error.
	maxShown = 4096
)

// frame is an open directory, and the walk's position in it.
type frame struct {
	fd   int
	name string // in its parent
	mark level
	buf  []byte // bufferSize bytes
	pos  int    // start of the next entry in buf
	end  int    // end of the data in buf
	last int    // start of the last entry in buf
}

// level stores the walk's position in one directory on the path to the current directory.
type level struct {
	ino           uint64
	before, after int64 // offsets in the directory before and after the last entry
	marked        bool
}

// Walk is a walk of a directory tree, for one goroutine. [Open] and [Resume] create
// it.
type Walk struct {
	root   string
	dev    uint64
	depth  int
	frames []*frame // the first Held levels, which stay open; then the current level, if it is deeper
	deep   []level  // the closed levels between these, without the dropped ones

	name string
	kind byte
	step Event
	bare bool // the kernel has no openat2
}

// Open starts a walk at the directory dir. It fails if dir is a symbolic link.
func Open(dir string) (*Walk, error) {
	w := &Walk{root: dir}
	fd, err := retry(func() (int, error) {
		return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	if err := w.begin(fd); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return w, nil
}

// OpenAt starts a walk at the directory name in the directory whose descriptor is at. It returns
// the kernel's error unchanged: EXDEV for a mount point, ENOTDIR or ELOOP if name is not a
// directory. The results of Path begin with shown.
func OpenAt(at int, name, shown string) (*Walk, error) {
	w := &Walk{root: shown}
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return nil, err
	}
	w.dev = uint64(st.Dev) //nolint:unconvert // 32 bits on some machines
	fd, _, err := w.open(at, name)
	if err != nil {
		return nil, err
	}
	return w, w.begin(fd)
}

func (w *Walk) begin(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	w.dev = uint64(st.Dev) //nolint:unconvert // 32 bits on some machines
	w.push(fd, st.Ino, "")
	w.step = Entry
	return nil
}

// push makes the open directory fd the current one. It appends a frame, or reuses a popped one.
func (w *Walk) push(fd int, ino uint64, name string) {
	f := &frame{buf: make([]byte, bufferSize)}
	if n := len(w.frames); n < cap(w.frames) {
		if old := w.frames[:n+1][n]; old != nil {
			f = old
		}
	}
	*f = frame{fd: fd, name: name, mark: level{ino: ino}, buf: f.buf}
	w.frames = append(w.frames, f)
}

// Close ends the walk and closes its descriptors.
func (w *Walk) Close() {
	for _, f := range w.frames {
		_ = unix.Close(f.fd)
	}
	w.frames, w.deep = nil, nil
}

func (w *Walk) top() *frame { return w.frames[len(w.frames)-1] }

// Fd returns the descriptor of the current directory. The walk owns the descriptor and may
// close it in the next call of Next or Enter.
func (w *Walk) Fd() int { return w.top().fd }

// Name returns the name of the last entry.
func (w *Walk) Name() string { return w.name }

// Type returns the type of the last entry as in getdents(2). It is DT_UNKNOWN if the
// file system does not report types.
func (w *Walk) Type() byte { return w.kind }

// Depth returns the number of levels from the first directory to the current one.
func (w *Walk) Depth() int { return w.depth }

// Dev returns the device of the file system to which the walk is limited.
func (w *Walk) Dev() uint64 { return w.dev }

// Ino returns the inode of the current directory.
func (w *Walk) Ino() uint64 { return w.top().mark.ino }

// Mark marks the current directory. When the walk leaves a marked directory, it also marks the
// parent.
func (w *Walk) Mark() { w.top().mark.marked = true }

// Marked reports whether the current directory is marked.
func (w *Walk) Marked() bool { return w.top().mark.marked }

// Next makes a step. An error comes only with End: the rest of the directory cannot be
// read.
func (w *Walk) Next() (Event, error) {
	var err error
	switch w.step {
	case Done:
	case End:
		w.step = w.leave()
	default:
		w.step, err = w.read()
	}
	return w.step, err
}

// read returns Entry for the next entry of the current directory, and End if there is none.
func (w *Walk) read() (Event, error) {
	f := w.top()
	for range maxIdle {
		for f.pos < f.end {
			name, kind, ok := f.parse()
			if !ok {
				return End, unix.EIO
			}
			if strings.Contains(name, "/") { // the kernel never returns such a name
				return End, unix.EIO
			}
			if name != "." && name != ".." {
				w.name, w.kind = name, kind
				return Entry, nil
			}
		}
		n, err := retry(func() (int, error) { return unix.ReadDirent(f.fd, f.buf) })
		if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: the directory was removed
			return End, err
		}
		if n <= 0 {
			return End, nil
		}
		f.pos, f.end = 0, n
	}
	return End, unix.EIO
}

// parse returns the next entry in the buffer, a struct linux_dirent64 (getdents(2)). ok is false if
// the entry is malformed.
func (f *frame) parse() (name string, kind byte, ok bool) {
	const header = 19
	b := f.buf[f.pos:f.end]
	if len(b) < header {
		return "", 0, false
	}
	size := int(binary.NativeEndian.Uint16(b[16:]))
	if size < header || size > len(b) {
		return "", 0, false
	}
	f.last = f.pos
	f.pos += size
	f.mark.before, f.mark.after = f.mark.after, int64(binary.NativeEndian.Uint64(b[8:])) //nolint:gosec // a cookie
	text := b[header:size]
	for i, c := range text {
		if c == 0 {
			text = text[:i]
			break
		}
	}
	return string(text), b[18], true
}

// Enter makes the last entry the current directory. If Enter fails, the current directory stays the
// same, and the error is the kernel's, see [OpenAt].
func (w *Walk) Enter() error {
	fd, ino, err := w.open(w.Fd(), w.name)
	if err != nil {
		return err
	}
	if w.depth >= Held {
		w.remember(w.top().mark)
		w.drop()
	}
	name := w.name
	if w.depth+1 >= Held {
		name = "" // a frame below Held is made anew by leave, which does not know the name
	}
	w.push(fd, ino, name)
	w.depth++
	w.step = Entry
	return nil
}

// remember appends a level to w.deep. If w.deep is full, it drops the upper half.
func (w *Walk) remember(l level) {
	if len(w.deep) == Remembered {
		w.deep = w.deep[:copy(w.deep, w.deep[Remembered/2:])]
	}
	w.deep = append(w.deep, l)
}

// drop closes the current directory.
func (w *Walk) drop() {
	_ = unix.Close(w.Fd())
	w.frames = w.frames[:len(w.frames)-1]
}

// open opens the directory name in the directory with the descriptor parent, and returns its inode.
// It fails for symbolic links and mount points.
func (w *Walk) open(parent int, name string) (fd int, ino uint64, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if !w.bare {
		fd, err = retry(func() (int, error) {
			return unix.Openat2(parent, name, &unix.OpenHow{
				Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
			})
		})
		w.bare = errors.Is(err, unix.ENOSYS)
	}
	if w.bare || errors.Is(err, unix.EPERM) { // a sandbox without the call may return EPERM
		fd, err = retry(func() (int, error) { return unix.Openat(parent, name, flags, 0) })
	}
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && uint64(st.Dev) != w.dev { //nolint:unconvert // 32 bits on some machines
		err = unix.EXDEV
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Ino, nil
}

// leave makes the parent the current directory and returns Back. If the parent cannot be found, it
// returns Lost, and the current directory is the deepest ancestor that is open. In the first
// directory it returns Done.
func (w *Walk) leave() Event {
	if w.depth == 0 {
		return Done
	}
	marked := w.Marked()
	if w.depth <= Held {
		w.drop()
		w.depth--
		w.top().mark.marked = w.Marked() || marked
		return Back
	}
	if n := len(w.deep); n > 0 {
		up := w.deep[n-1]
		w.deep = w.deep[:n-1]
		if fd, ok := w.parent(up.ino); ok {
			w.drop()
			up.marked = up.marked || marked
			w.push(fd, up.ino, "")
			w.top().mark = up
			w.seek(up.after)
			w.depth--
			return Back
		}
	}
	w.drop()
	w.deep = w.deep[:0]
	w.depth = Held - 1
	w.top().mark.marked = w.Marked() || marked
	return Lost
}

// parent opens the parent of the current directory. It returns false if the parent's inode is not
// ino.
func (w *Walk) parent(ino uint64) (int, bool) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(w.Fd(), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Ino != ino || uint64(st.Dev) != w.dev { //nolint:unconvert // 32 bits on some machines
		_ = unix.Close(fd)
		return -1, false
	}
	return fd, true
}

// Again makes the next step return the last entry again. After Back, the last entry is
// the directory that was left.
func (w *Walk) Again() {
	f := w.top()
	f.mark.after = f.mark.before
	if f.end > 0 {
		f.pos = f.last
	} else {
		w.seek(f.mark.before)
	}
	w.step = Entry
}

// Rewind makes the next step return the first entry of the current directory.
func (w *Walk) Rewind() {
	w.seek(0)
	w.step = Entry
}

func (w *Walk) seek(to int64) {
	f := w.top()
	f.mark.after, f.pos, f.end = to, 0, 0
	_, _ = unix.Seek(f.fd, to, unix.SEEK_SET)
}

// Path returns the path of a name in the current directory, for messages. In a deep
// directory it leaves out the middle of the path.
func (w *Walk) Path(name string) string {
	var b strings.Builder
	b.WriteString(w.root)
	left := 0
	for i, f := range w.frames {
		if i == 0 {
			continue
		}
		if f.name == "" || b.Len()+len(f.name) > maxShown/2 {
			left = w.depth - i + 1
			break
		}
		b.WriteString("/" + f.name)
	}
	if left > 0 {
		b.WriteString("/...(" + strconv.Itoa(left) + " levels)")
	}
	if name != "" {
		b.WriteString("/" + name)
	}
	return b.String()
}

// Fail returns an error for an operation on a name in the current directory. If name is
// "", the error is for the directory itself.
func (w *Walk) Fail(op, name string, err error) error {
	return &os.PathError{Op: op, Path: w.Path(name), Err: err}
}

// retry repeats a system call that fails with EINTR or EAGAIN. openat2 returns EAGAIN if a file was
// renamed at the same time.
func retry(call func() (int, error)) (int, error) {
	for range 1000 {
		n, err := call()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
	return -1, unix.EAGAIN
}
