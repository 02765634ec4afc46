//go:build linux

package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"
)

// errLimit means that a layer exceeds one of the limits.
var errLimit = errors.New("limit exceeded")

// errFull means that less than the reserve is free on the file system.
var errFull = errors.New("disk space is below the reserve for images")

// Limits for the data about an archive that is kept until its end.
const (
	maxRemembered = 16 << 20 // bytes of names, plus 32 for each
	maxReplaced   = 1000     // directories of its own that an archive may replace
	maxXattr      = 64 << 10
	maxSteps      = 1 << 20 // look-ups in the layers below
)

// remembered counts the bytes of memory that are used for names until the end of an
// archive.
type remembered int

// add counts names that are stored together, plus 32 bytes of overhead. It returns errLimit if
// the names of the archive need too much memory.
func (r *remembered) add(names ...string) error {
	*r += 32
	for _, n := range names {
		*r += remembered(len(n))
	}
	if *r > maxRemembered {
		return fmt.Errorf("%w: the names in the layer have more than %d bytes", errLimit, maxRemembered)
	}
	return nil
}

// unpackLimits are the limits of one layer. If one is exceeded, the error is errLimit.
// complete does not check entries.
type unpackLimits struct {
	bytes   int64        // of files
	entries int64        // of the archive
	space   func() error // returns an errFull if the disk is full; called from time to time
}

// rootAttr has the attributes of the layer's root in the archive. Overlayfs takes the root's
// attributes from the upper directory, so they have to be set there when the layers are mounted.
type rootAttr struct {
	Mode uint32 `json:"mode"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
}

// unpacked is the result of unpacking an archive.
type unpacked struct {
	size       int64 // bytes of files
	entries    int64
	opaqueRoot bool
	root       *rootAttr
	implied    []string // directories whose owner and mode must come from lower layers
	links      []link   // hard links with targets in lower layers
}

// alone reports whether a layer does not depend on lower layers.
func (u *unpacked) alone() bool { return len(u.implied) == 0 && len(u.links) == 0 }

// link is a hard link: both paths are clean and relative to the layer's root.
type link struct{ name, target string }

// unpacker unpacks an archive to a layer's tree, in overlayfs's format. Only one goroutine may
// use it.
type unpacker struct {
	tree
	lim unpackLimits
	// buf is a buffer for copies of content, used for all entries of the layer.
	buf []byte

	out unpacked
	// implied has the directories that exist only because an entry below them was unpacked. The
	// archive may still have an entry for each.
	implied map[string]bool
	// remembered counts the memory used for names, replaced the layer's own directories that were
	// replaced, and sinceSpace the bytes written since the last check of the free space.
	remembered remembered
	replaced   int
	followed   int // path elements that were checked for links
	sinceSpace int64

	times    *os.File // times of directories, set at the end
	timesBuf *bufio.Writer
}

// unpack unpacks the archive r into the empty directory dir. scratch is the path of a
// temporary file, which it creates and removes. The error is errLimit, errFull, or an
// error of the file system; any other error means that the archive is invalid. After an
// error, dir has the entries that were unpacked before.
func unpack(ctx context.Context, dir, scratch string, r io.Reader, lim unpackLimits) (*unpacked, error) {
	t, err := openTree(dir)
	if err != nil {
		return nil, err
	}
	times, err := os.OpenFile(scratch, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:forbidigo // a new file, with O_EXCL
	if err != nil {
		t.Close()
		return nil, err
	}
	u := &unpacker{
		tree: *t, lim: lim, buf: make([]byte, 128<<10),
		implied: map[string]bool{}, times: times, timesBuf: bufio.NewWriterSize(times, 16<<10),
	}
	defer func() {
		u.Close()
		_ = times.Close()
		_ = os.Remove(scratch)
	}()
	tr := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		// The library parses PAX and GNU headers, with size limits of its own.
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		if err := u.entry(h, tr); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", shown(h.Name), err)
		}
	}
	// Targets may follow in the archive; those still missing now are in a lower layer.
	if err := u.linkLate(); err != nil {
		return nil, err
	}
	// After the last entry: each new entry changes the time of its directory.
	if err := u.setTimes(); err != nil {
		return nil, err
	}
	// In order, parents are before their children.
	u.out.implied = slices.Sorted(maps.Keys(u.implied))
	return &u.out, nil
}

// entry unpacks one entry of the archive.
func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if u.out.entries++; u.out.entries > u.lim.entries {
		return fmt.Errorf("%w: layer has more than %d entries", errLimit, u.lim.entries)
	}
	if err := u.spend(cost(h)); err != nil {
		return err
	}
	act, path, err := classify(h)
	if err != nil || act == ignore {
		return err
	}
	// The root has no parent to open, and no name to create.
	if path == "." {
		return u.rootEntry(act, h)
	}
	if act == opaque {
		// The entry of the parent directory may follow later, or be missing.
		fd, _, err := u.makeDir(path)
		if err != nil {
			return err
		}
		return setOpaque(fd)
	}
	dir, base := split(path)
	fd, dir, err := u.makeDir(dir)
	if err != nil {
		return err
	}
	if act == whiteout {
		return u.hide(fd, base)
	}
	return u.put(fd, join(dir, base), base, h, r)
}

// cost returns how many bytes of the disk an entry may take in addition to its content:
// for an inode and a part of a block, for its name in the directory and in the list of
// times, for the target of a link, and for attributes.
func cost(h *tar.Header) int64 {
	n := 1<<12 + 2*len(h.Name) + len(h.Linkname)
	for name, value := range h.PAXRecords {
		if strings.HasPrefix(name, xattrRecord) {
			n += len(value)
		}
	}
	return int64(n)
}

// spend adds to the bytes written, and checks the free space every 32 MiB.
func (u *unpacker) spend(n int64) error {
	if u.sinceSpace += n; u.sinceSpace < 32<<20 {
		return nil
	}
	u.sinceSpace = 0
	return u.lim.space()
}

// rootEntry unpacks an entry for the root of the layer.
func (u *unpacker) rootEntry(act action, h *tar.Header) error {
	if act == opaque {
		// Overlayfs ignores the mark on a root: Use omits the layers below instead.
		u.out.opaqueRoot = true
		return setOpaque(u.fd)
	}
	if act == whiteout {
		return errors.New("whiteout of the layer's root directory")
	}
	if err := u.own(u.fd, h); err != nil {
		return err
	}
	u.out.root = &rootAttr{Mode: mode(h), UID: h.Uid, GID: h.Gid}
	return u.laterTime(".", h.ModTime)
}

// mode returns the permission bits of an entry, with setuid, setgid and the sticky bit.
func mode(h *tar.Header) uint32 { return uint32(h.Mode) & 0o7777 }

// findDir opens a directory of the layer, and returns its path with links resolved. The
// descriptor belongs to the tree, like that of dir. If the directory does not exist, the
// error is ENOENT, and the result real is the path that it would have.
func (u *unpacker) findDir(path string) (fd int, real string, err error) {
	fd, err = u.dir(path)
	// Only a link, or a file in the path, causes one of these.
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
		return fd, path, err
	}
	if real, err = u.follow(path); err != nil {
		return -1, path, err
	}
	fd, err = u.dir(real)
	return fd, real, err
}

// follow resolves the symbolic links in a path, with the layer's root as root. As in other
// runtimes, it considers only links in this layer: a link in a lower layer is hidden by the
// directory that this layer has in its place. Elements that are missing or not links stay
// unchanged.
func (u *unpacker) follow(path string) (string, error) {
	const most = 40 // links in one path, as in the kernel: path_resolution(7)
	links, text := 0, make([]byte, maxPath+1)
	var done []string
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		e := rest[0]
		rest = rest[1:]
		if e == "" || e == "." {
			continue
		}
		if e == ".." {
			done = done[:max(0, len(done)-1)]
			continue
		}
		// One limit for the whole layer: links are cheap to write and expensive to follow.
		if u.followed++; u.followed > maxSteps || len(done) >= maxDepth {
			return "", fmt.Errorf("%w: path %s: its symbolic links have too many elements", errLimit, shown(path))
		}
		to, err := u.linkText(strings.Join(done, "/"), e, text)
		if err != nil {
			return "", err
		}
		if to == "" {
			done = append(done, e)
			continue
		}
		if links++; links > most {
			return "", fmt.Errorf("more than %d symbolic links on the path %s", most, shown(path))
		}
		if to[0] == '/' {
			done = nil
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	if len(done) == 0 {
		return ".", nil
	}
	return strings.Join(done, "/"), nil
}

// linkText returns the target of a symbolic link, which it reads into buf. It returns "" if the
// entry is not a link. dir is a path without links, or "" for the root.
func (u *unpacker) linkText(dir, base string, buf []byte) (string, error) {
	at := u.fd
	if dir != "" {
		fd, err := openBeneath(u.fd, dir)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		defer func() { _ = unix.Close(fd) }()
		at = fd
	}
	n, err := unix.Readlinkat(at, base, buf)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return string(buf[:max(0, n)]), err
}

// makeDir is like findDir, but creates the directories that the layer does not have, owned by root
// with mode 0755. They are added to u.implied, except those that replace a whiteout: if the archive
// has no entries for them, complete copies owner and mode from the lower layers.
func (u *unpacker) makeDir(path string) (fd int, real string, err error) {
	fd, real, err = u.findDir(path)
	if err == nil {
		return fd, real, nil
	}
	// These errors can be handled, or explained, by going through the path.
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		return -1, real, err
	}
	at, done := u.fd, ""
	for e := range strings.SplitSeq(real, "/") {
		done = strings.TrimPrefix(done+"/"+e, "/")
		next, err := u.step(at, e, done)
		if at != u.fd {
			// One descriptor at a time, for paths of any depth.
			_ = unix.Close(at)
		}
		if err != nil {
			return -1, real, err
		}
		at = next
	}
	u.forget()
	u.at, u.atFD = real, at
	return at, real, nil
}

// step opens or creates an element of a path. at is an open directory, path the path of the
// element in the layer. The caller closes the result.
func (u *unpacker) step(at int, base, path string) (int, error) {
	fd, err := openBeneath(at, base)
	if err == nil {
		return fd, nil
	}
	fresh := false
	if !errors.Is(err, unix.ENOENT) {
		st, serr := stat(at, base)
		if serr != nil {
			return -1, serr
		}
		// Only a whiteout may be replaced. Links were resolved before.
		if !isWhiteout(&st) {
			return -1, fmt.Errorf("path contains %s, which is not a directory", shown(path))
		}
		if err := unix.Unlinkat(at, base, 0); err != nil {
			return -1, err
		}
		fresh = true
	}
	if err := unix.Mkdirat(at, base, 0o755); err != nil {
		return -1, err
	}
	if fd, err = openBeneath(at, base); err != nil {
		return -1, err
	}
	// The umask has removed bits in mkdir.
	if err := unix.Fchmod(fd, 0o755); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	// A directory that replaces a whiteout is new: it must still hide the layers below.
	if fresh {
		err = setOpaque(fd)
	} else if !u.implied[path] {
		u.implied[path] = true
		err = u.remembered.add(path)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// hide creates a whiteout. If the layer itself has an entry of this name, the entry stays,
// and only the layers below are hidden. fd is the open parent.
func (u *unpacker) hide(fd int, base string) error {
	st, err := stat(fd, base)
	switch {
	case errors.Is(err, unix.ENOENT):
		// A character device 0/0 is overlayfs's whiteout.
		return unix.Mknodat(fd, base, unix.S_IFCHR, 0)
	case err != nil:
		return err
	// Whiteouts apply only to lower layers, in any order within the archive (OCI image
	// specification, "Whiteouts").
	case isDir(&st):
		d, err := openBeneath(fd, base)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(d) }()
		return setOpaque(d)
	}
	return nil
}

// clear removes an existing entry to make room for a new one that is not a directory. fd is the
// open parent of path.
func (u *unpacker) clear(fd int, path, base string) error {
	st, err := stat(fd, base)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if isDir(&st) {
		// A removal takes as long as the tree is large: an archive could fill and replace one
		// directory again and again.
		if u.replaced++; u.replaced > maxReplaced {
			return fmt.Errorf("%w: layer replaces more than %d directories of its own", errLimit, maxReplaced)
		}
		held, err := unix.Dup(fd)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(held) }()
		if err := u.remove(held, base); err != nil {
			return err
		}
		// The cached descriptor would still refer to the removed directory.
		if u.at == path || strings.HasPrefix(u.at, path+"/") {
			u.forget()
		}
	} else if err := unix.Unlinkat(fd, base, 0); err != nil {
		return err
	}
	delete(u.implied, path)
	return nil
}

// put creates an entry that is neither a whiteout nor the root; fd is the open parent.
func (u *unpacker) put(fd int, path, base string, h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return u.putDir(fd, path, base, h)
	}
	if h.Typeflag == tar.TypeLink {
		return u.putLink(fd, path, base, h)
	}
	// Directories keep their entries and links their target: both functions handle an existing
	// entry themselves.
	if err := u.clear(fd, path, base); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeRegA, tar.TypeGNUSparse: //nolint:staticcheck // old archives have it
		return u.putFile(fd, base, h, r)
	case tar.TypeSymlink:
		if err := unix.Symlinkat(h.Linkname, fd, base); err != nil {
			return err
		}
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		err := u.putNode(fd, base, h)
		// In a user namespace nobody can create device nodes. Containers could not open them anyway, and
		// get their devices from the OCI runtime.
		if errors.Is(err, unix.EPERM) && h.Typeflag != tar.TypeFifo && userns.RunningInUserNS() {
			return nil
		}
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("entries of type %q are not supported", h.Typeflag)
	}
	// Nodes are not opened: that would have an effect on a device's driver or a FIFO.
	return u.ownAt(fd, base, h)
}

// putDir creates a directory, or sets the owner and mode of an existing one.
func (u *unpacker) putDir(fd int, path, base string, h *tar.Header) error {
	hidden := false
	// Closed to others until it has its final mode.
	if err := unix.Mkdirat(fd, base, 0o700); errors.Is(err, unix.EEXIST) {
		st, err := stat(fd, base)
		if err != nil {
			return err
		}
		if !isDir(&st) {
			// If a whiteout and a directory have the same name, the directory hides the lower
			// layers.
			hidden = isWhiteout(&st)
			if err := u.clear(fd, path, base); err != nil {
				return err
			}
			if err := unix.Mkdirat(fd, base, 0o700); err != nil {
				return err
			}
		}
	} else if err != nil {
		return err
	}
	d, err := openBeneath(fd, base)
	if err != nil {
		return err
	}
	u.forget()
	u.at, u.atFD = path, d // most likely its entries follow
	// Its attributes are known now and need not come from lower layers.
	delete(u.implied, path)
	if err := u.own(d, h); err != nil {
		return err
	}
	if hidden {
		if err := setOpaque(d); err != nil {
			return err
		}
	}
	// Later entries in it change the time.
	return u.laterTime(path, h.ModTime)
}

// putFile makes a regular file with its content.
func (u *unpacker) putFile(fd int, base string, h *tar.Header, r io.Reader) error {
	// The header's claim is checked before a byte is written, in a way that cannot
	// overflow.
	if h.Size < 0 || h.Size > u.lim.bytes-u.out.size {
		return fmt.Errorf("%w: files have more than %d bytes", errLimit, u.lim.bytes)
	}
	// O_EXCL: clear has removed an existing entry.
	f, err := unix.Openat(fd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	n, err := u.copy(f, r)
	// The reader fills the holes of sparse files, so that the sizes have to be equal.
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = u.own(f, h)
	}
	if err = errors.Join(err, unix.Close(f)); err != nil {
		return err
	}
	u.out.size += n
	// After the last write to the file.
	return setTime(fd, base, h.ModTime)
}

// zeroBlock is a block that is not written: the file has a hole in its place.
var zeroBlock [4 << 10]byte

// copy writes the content of r to an empty file, with holes in place of blocks of zeros. It
// returns the number of bytes. The limit also counts the files that the layer has already,
// including their holes.
func (u *unpacker) copy(f int, r io.Reader) (n int64, err error) {
	end := int64(0) // of what was written
	for {
		m, rerr := readFull(r, u.buf)
		if n+int64(m) > u.lim.bytes-u.out.size {
			return n, fmt.Errorf("%w: files have more than %d bytes", errLimit, u.lim.bytes)
		}
		for at := 0; at < m; {
			data := dataAt(u.buf[at:m])
			if data == 0 {
				at += len(zeroBlock)
				continue
			}
			if err := writeAt(f, u.buf[at:at+data], n+int64(at)); err != nil {
				return n, err
			}
			if err := u.spend(int64(data)); err != nil {
				return n, err
			}
			at += data
			end = n + int64(at)
		}
		n += int64(m)
		switch {
		case errors.Is(rerr, io.EOF) && end < n:
			return n, unix.Ftruncate(f, n)
		case errors.Is(rerr, io.EOF):
			return n, nil
		case rerr != nil:
			return n, rerr
		}
	}
}

// readFull reads until b is full or an error occurs, which may be io.EOF.
func readFull(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// dataAt returns the number of bytes before the next block of zeros.
func dataAt(b []byte) int {
	for at := 0; at < len(b); at += len(zeroBlock) {
		if block := b[at:min(at+len(zeroBlock), len(b))]; len(block) == len(zeroBlock) && bytes.Equal(block, zeroBlock[:]) {
			return at
		}
	}
	return len(b)
}

// writeAt writes all of b.
func writeAt(f int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(f, b, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// putNode creates a device node or a FIFO. Which devices a container may open is decided by its
// device cgroup.
func (u *unpacker) putNode(fd int, base string, h *tar.Header) error {
	kind, dev := uint32(unix.S_IFIFO), 0
	if h.Typeflag != tar.TypeFifo {
		// Device numbers of the kernel have 12 and 20 bits.
		if h.Devmajor < 0 || h.Devmajor >= 1<<12 || h.Devminor < 0 || h.Devminor >= 1<<20 {
			return fmt.Errorf("device %d:%d; want at most %d:%d", h.Devmajor, h.Devminor, 1<<12-1, 1<<20-1)
		}
		dev = int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
		kind = unix.S_IFCHR
		if h.Typeflag == tar.TypeBlock {
			kind = unix.S_IFBLK
		}
	}
	return unix.Mknodat(fd, base, kind|mode(h), dev)
}

// putLink creates a hard link. If the target does not exist yet, it may follow in the archive, or
// be in a lower layer; this is known only at the end of the archive.
func (u *unpacker) putLink(fd int, path, base string, h *tar.Header) error {
	target, err := cleanName(h.Linkname)
	if err != nil {
		return fmt.Errorf("hard link: %w", err)
	}
	held, err := unix.Dup(fd) // looking up the target may close it
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(held) }()
	if target, err = u.where(target); err != nil {
		return fmt.Errorf("hard link: %w", err)
	}
	// A link to itself, as some builders write it.
	if target == path {
		return nil
	}
	done, err := u.linkTo(held, path, base, target)
	if err != nil || done {
		return err
	}
	u.out.links = append(u.out.links, link{path, target})
	return u.remembered.add(path, target)
}

// where returns the path of an entry, in which links of its parents are resolved. The last
// element is not followed.
func (u *unpacker) where(path string) (string, error) {
	dir, base := split(path)
	_, real, err := u.findDir(dir)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		return "", err
	}
	return join(real, base), nil
}

// linkTo creates a hard link if its target exists. If the target is missing it returns false and
// changes nothing. fd must not be the tree's cached descriptor, which linkTo may close.
func (u *unpacker) linkTo(fd int, path, base, target string) (done bool, err error) {
	dir, name := split(target)
	from, err := u.dir(dir)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("hard link to %s: %w", shown(target), err)
	}
	st, err := stat(from, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, err
	// A hard link to a whiteout would be another whiteout.
	case isWhiteout(&st):
		return false, fmt.Errorf("hard link to %s, which the layer removes", shown(target))
	case isDir(&st):
		return false, fmt.Errorf("hard link to the directory %s", shown(target))
	}
	held, err := unix.Dup(from)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(held) }()
	// Only now that the link can be created.
	if err := u.clear(fd, path, base); err != nil {
		return false, err
	}
	// No flags: a symbolic link as target is not followed; the link itself gets another name.
	return true, unix.Linkat(held, name, fd, base, 0)
}

// linkLate creates the links whose targets followed later in the archive. Those with targets
// outside of the archive stay in u.out.links.
func (u *unpacker) linkLate() error {
	var left []link
	for _, l := range u.out.links {
		// A symbolic link in the target's path may have followed later, too.
		var err error
		if l.target, err = u.where(l.target); err != nil {
			return fmt.Errorf("hard link to %s: %w", shown(l.target), err)
		}
		dir, base := split(l.name)
		fd, err := u.dir(dir)
		if err != nil {
			continue // a later entry replaced its directory
		}
		if st, err := stat(fd, base); err == nil && !isWhiteout(&st) {
			continue // or the link itself
		}
		held, err := unix.Dup(fd)
		if err != nil {
			return err
		}
		done, err := u.linkTo(held, l.name, base, l.target)
		_ = unix.Close(held)
		if err != nil {
			return err
		}
		if !done {
			left = append(left, l)
		}
	}
	u.out.links = left
	return nil
}

// own sets the owner, mode and attributes of an open file. The mode comes after the owner,
// since chown clears setuid; attributes come last, since chown removes file capabilities.
func (u *unpacker) own(fd int, h *tar.Header) error {
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return ownerError(h, err)
	}
	if err := unix.Fchmod(fd, mode(h)); err != nil {
		return err
	}
	return u.eachXattr(h, func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) })
}

// ownAt does the same as own for entries that must not be opened.
func (u *unpacker) ownAt(fd int, base string, h *tar.Header) error {
	if err := unix.Fchownat(fd, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return ownerError(h, err)
	}
	// Symbolic links have no mode of their own on Linux.
	if h.Typeflag != tar.TypeSymlink {
		// It was just created by this function's caller, so it is not a link.
		if err := unix.Fchmodat(fd, base, mode(h), 0); err != nil {
			return err
		}
	}
	if err := u.eachXattr(h, func(name string, value []byte) error {
		return unix.Lsetxattr(byFD(fd, base), name, value, 0)
	}); err != nil {
		return err
	}
	return setTime(fd, base, h.ModTime)
}

// ownerError explains the error of a change of owner in a user namespace, which has no other IDs than
// those of its ranges.
func ownerError(h *tar.Header, err error) error {
	if errors.Is(err, unix.EINVAL) && userns.RunningInUserNS() {
		return fmt.Errorf("%w: owner %d:%d does not exist in the user namespace of this process; want IDs in the ranges of /proc/self/uid_map and gid_map", errInvalid, h.Uid, h.Gid)
	}
	return err
}

// xattrRecord is the prefix of PAX records with extended attributes.
const xattrRecord = "SCHILY.xattr."

// eachXattr calls set for the extended attributes of an entry that are to be set. They are in PAX
// records with the prefix of star and GNU tar.
func (u *unpacker) eachXattr(h *tar.Header, set func(name string, value []byte) error) error {
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrRecord)
		if !ok || !keepsXattr(name) {
			continue
		}
		// The kernel's limit (XATTR_SIZE_MAX); the error names the attribute.
		if len(value) > maxXattr {
			return fmt.Errorf("%w: attribute %s has %d bytes; want at most %d", errLimit, shown(name), len(value), maxXattr)
		}
		err := set(name, []byte(value))
		// EPERM is returned for user attributes of links and devices (xattr(7)); other unpackers
		// ignore these as well.
		if err == nil || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
			continue
		}
		// ext4 stores all attributes of a file in one block, and returns ENOSPC if they do not
		// fit. The disk is full only if other writes fail, too.
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ERANGE) {
			if full := u.lim.space(); full != nil {
				return full
			}
			return fmt.Errorf("%w: attribute %s of %d bytes does not fit into the file system", errLimit, shown(name), len(value))
		}
		return fmt.Errorf("set attribute %s: %w", shown(name), err)
	}
	return nil
}

// setTime sets both times of an entry, to the nanosecond, and follows no link.
func setTime(fd int, base string, t time.Time) error {
	ts := unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
	return unix.UtimesNanoAt(fd, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// laterTime stores a directory's time, which is set at the end, since creating entries changes
// the time. Times are stored in a file, since a layer may have a million directories: seconds,
// nanoseconds, length of the path, path.
func (u *unpacker) laterTime(path string, t time.Time) error {
	var head [18]byte
	binary.LittleEndian.PutUint64(head[0:], uint64(t.Unix()))
	binary.LittleEndian.PutUint64(head[8:], uint64(t.Nanosecond()))
	binary.LittleEndian.PutUint16(head[16:], uint16(len(path)))
	if _, err := u.timesBuf.Write(head[:]); err != nil {
		return err
	}
	_, err := u.timesBuf.WriteString(path)
	return err
}

// setTimes sets the times that laterTime stored, in the archive's order: the last entry of a path
// counts.
func (u *unpacker) setTimes() error {
	if err := u.timesBuf.Flush(); err != nil {
		return err
	}
	if _, err := u.times.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReaderSize(u.times, 16<<10)
	for {
		var head [18]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		path := make([]byte, binary.LittleEndian.Uint16(head[16:]))
		if _, err := io.ReadFull(r, path); err != nil {
			return err
		}
		t := time.Unix(int64(binary.LittleEndian.Uint64(head[0:])), int64(binary.LittleEndian.Uint64(head[8:])))
		// The root has no parent directory that is open.
		if string(path) == "." {
			if err := setTime(unix.AT_FDCWD, u.path, t); err != nil {
				return err
			}
			continue
		}
		dir, base := split(string(path))
		fd, err := u.dir(dir)
		if err != nil {
			continue // replaced meanwhile
		}
		// A file or link with that name has its own time.
		if st, err := stat(fd, base); err == nil && isDir(&st) {
			if err := setTime(fd, base, t); err != nil {
				return err
			}
		}
	}
}
