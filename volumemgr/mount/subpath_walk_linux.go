package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// SubPathWalk opens and creates paths below a directory that other processes may change. The zero
// value is ready to use.
type SubPathWalk struct {
	// NoOpenat2 avoids openat2(2), as if the kernel were older than 5.6.
	NoOpenat2 bool
}

// tries limits how often openat2(2) is called again after a race with a rename.
const tries = 16

// Open opens the path rel below base as an O_PATH descriptor. It follows no symbolic link in rel,
// but returns ErrSymlink; base itself may be a link. If rel contains "..", it returns ErrOutside.
func (w SubPathWalk) Open(base, rel string) (*os.File, error) {
	root, err := openBase(base)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	elements, err := subPathSplit(rel)
	if err != nil {
		return nil, err
	}
	return w.open(root, elements)
}

// subPathSplit returns the elements of a relative path; ".." is an error.
func subPathSplit(rel string) ([]string, error) {
	if filepath.IsAbs(rel) {
		return nil, fmt.Errorf("%q: %w", rel, ErrOutside)
	}
	var out []string
	for e := range strings.SplitSeq(rel, "/") {
		switch e {
		case "", ".":
		case "..":
			return nil, fmt.Errorf("%q: %w", rel, ErrOutside)
		default:
			out = append(out, e)
		}
	}
	return out, nil
}

func openBase(base string) (*os.File, error) {
	return openAt(unix.AT_FDCWD, base, unix.O_PATH|unix.O_DIRECTORY, base)
}

func openAt(dir int, name string, flags int, shown string) (*os.File, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: shown, Err: err}
		}
		return os.NewFile(uintptr(fd), shown), nil
	}
}

func (w SubPathWalk) open(root *os.File, elements []string) (*os.File, error) {
	if len(elements) == 0 {
		return openAt(int(root.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY, root.Name())
	}
	if !w.NoOpenat2 {
		f, err := openBeneath(root, elements)
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EPERM) {
			return f, err
		}
	}
	return openSteps(root, elements)
}

// openBeneath lets the kernel resolve the path. It first tries to open a directory, since that
// triggers an automounter (path_resolution(7)).
func openBeneath(root *os.File, elements []string) (*os.File, error) {
	rel := strings.Join(elements, "/")
	shown := filepath.Join(root.Name(), rel)
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	var err error
	for range tries {
		var fd int
		fd, err = unix.Openat2(int(root.Fd()), rel, &how)
		switch {
		case err == nil:
			return settle(os.NewFile(uintptr(fd), shown))
		case errors.Is(err, unix.ENOTDIR) && how.Flags&unix.O_DIRECTORY != 0:
			how.Flags &^= unix.O_DIRECTORY
		case errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("%s: %w", shown, ErrSymlink)
		case errors.Is(err, unix.EXDEV):
			return nil, fmt.Errorf("%s: %w", shown, ErrOutside)
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return nil, &os.PathError{Op: "open", Path: shown, Err: err}
		}
	}
	return nil, &os.PathError{Op: "open", Path: shown, Err: err}
}

// openSteps opens the elements of a path below root, one after the other, and returns the last one.
func openSteps(root *os.File, elements []string) (*os.File, error) {
	at := root
	for i, e := range elements {
		next, err := step(at, e, i == len(elements)-1)
		if at != root {
			_ = at.Close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// step opens one element of a path. Only the last element of the path may be something else than a
// directory.
func step(dir *os.File, name string, last bool) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW
	shown := filepath.Join(dir.Name(), name)
	f, err := openAt(int(dir.Fd()), name, flags|unix.O_DIRECTORY, shown)
	if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return f, err
	}
	f, err = openAt(int(dir.Fd()), name, flags, shown)
	if err != nil {
		return nil, err
	}
	f, err = settle(f)
	if err != nil || last {
		return f, err
	}
	_ = f.Close()
	return nil, &os.PathError{Op: "open", Path: shown, Err: unix.ENOTDIR}
}

// settle returns f. If f is a link, it closes f and returns an error.
func settle(f *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrSymlink)
	}
	return f, nil
}

// Resolve returns base and rel with their links followed, or ErrOutside if they lead out of base.
// The result may be outdated at once, so Open checks it again.
func (SubPathWalk) Resolve(base, rel string) (realBase, realRel string, err error) {
	if _, err := subPathSplit(rel); err != nil {
		return "", "", err
	}
	if realBase, err = filepath.EvalSymlinks(base); err != nil {
		return "", "", err
	}
	full, err := filepath.EvalSymlinks(filepath.Join(realBase, rel))
	if err != nil {
		return "", "", err
	}
	realRel, err = filepath.Rel(realBase, full)
	if err != nil || !filepath.IsLocal(realRel) {
		return "", "", fmt.Errorf("%s: %w", full, ErrOutside)
	}
	return realBase, realRel, nil
}

// MakeDir creates the directory rel below base, with its missing parents. Created directories get
// mode, including the setuid, setgid and sticky bits. Existing links are followed as long as they
// stay below base, but never where a directory has to be created. An existing directory is not an
// error; Open checks that it is below base.
func (w SubPathWalk) MakeDir(base, rel string, mode fs.FileMode) error {
	clean := filepath.Clean(rel)
	if filepath.IsAbs(rel) || !filepath.IsLocal(clean) {
		return fmt.Errorf("%q: %w", rel, ErrOutside)
	}
	elements, err := subPathSplit(clean)
	if err != nil {
		return err
	}
	there, err := existing(base, elements)
	if err != nil {
		return err
	}
	if there == len(elements) {
		return nil
	}
	realBase, realRel, err := w.Resolve(base, filepath.Join(elements[:there]...))
	if err != nil {
		return err
	}
	at, err := w.Open(realBase, realRel)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	for _, e := range elements[there:] {
		next, err := makeOne(at, e, mode)
		if err != nil {
			return err
		}
		_ = at.Close()
		at = next
	}
	return nil
}

// existing returns how many leading elements exist; the last of them is a directory. A dangling
// link counts as missing.
func existing(base string, elements []string) (int, error) {
	path := base
	for i := 0; ; i++ {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && i > 0:
			return i - 1, nil
		case err != nil:
			return 0, err
		case !info.IsDir():
			return 0, &os.PathError{Op: "make directory", Path: path, Err: unix.ENOTDIR}
		case i == len(elements):
			return i, nil
		}
		path = filepath.Join(path, elements[i])
	}
}

// makeOne creates a directory and opens it. If another process has just created it, that
// directory is opened.
func makeOne(dir *os.File, name string, mode fs.FileMode) (*os.File, error) {
	shown := filepath.Join(dir.Name(), name)
	merr := unix.Mkdirat(int(dir.Fd()), name, uint32(mode.Perm()))
	if merr != nil && !errors.Is(merr, unix.EEXIST) {
		return nil, &os.PathError{Op: "make directory", Path: shown, Err: merr}
	}
	f, err := openAt(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, shown)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		if linked, serr := isLink(dir, name); serr == nil && linked {
			return nil, fmt.Errorf("%s: %w", shown, ErrSymlink)
		}
	}
	if err != nil {
		return nil, err
	}
	if merr == nil {
		if err := f.Chmod(mode); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}

func isLink(dir *os.File, name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Mode&unix.S_IFMT == unix.S_IFLNK, err
}
