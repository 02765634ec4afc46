package atomicdir

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"
)

// The names are the kubelet's, since programs in containers watch ..data for changes.
const (
	dataLink = "..data"
	tempLink = "..data_tmp"
)

// Permission bits. Everybody may list directories; the bits of the files decide about access.
// With a group, the bits are the kubelet's for a volume that containers only read: files 0440,
// directories 0550 and setgid.
const (
	dirMode      = fs.FileMode(0o755)
	groupRead    = fs.FileMode(0o440)
	groupDirMode = fs.FileMode(0o550)
)

// Config says where and how a Writer publishes. Dir is required. Every other field has a default
// for its zero value.
type Config struct {
	// Dir is the directory to publish in. It must exist.
	Dir string
	// Group owns directories and files and may read them, whatever their mode. If it is nil, the
	// group of the process owns them.
	Group *int64
	// Dirs are directories that each set contains even without files, such as mount points. They
	// are relative, like paths of files.
	Dirs []string
	// Prepare is called with the path of each new directory when the directory is complete and
	// before it is published. It may label the files, but must not change their content, mode,
	// owner or group. If it fails, Write fails. Prepare may be nil.
	Prepare func(dir string) error
	// Sync syncs files and directories to the disk before they are published.
	Sync bool

	open func(dir string) (files, error) // tests replace it
}

// Writer publishes sets of files in one directory.
type Writer struct {
	cfg Config
	mu  sync.Mutex
}

// New validates cfg and returns a Writer.
func New(cfg Config) (*Writer, error) {
	var errs []error
	if cfg.Dir == "" {
		errs = append(errs, errors.New("atomicdir: Config.Dir is required"))
	} else if info, err := os.Stat(cfg.Dir); err != nil {
		errs = append(errs, fmt.Errorf("atomicdir: Config.Dir: %w", err))
	} else if !info.IsDir() {
		errs = append(errs, fmt.Errorf("atomicdir: Config.Dir: %q is not a directory", cfg.Dir))
	}
	if g := cfg.Group; g != nil && !validID(*g) {
		errs = append(errs, fmt.Errorf("atomicdir: Config.Group: %d, want 0 to %d", *g, maxID))
	}
	for _, d := range cfg.Dirs {
		if err := CheckPath(d); err != nil {
			errs = append(errs, fmt.Errorf("atomicdir: Config.Dirs: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.open == nil {
		cfg.open = openRoot
	}
	return &Writer{cfg: cfg}, nil
}

// maxID is the largest user or group ID. The next value is -1 for chown(2), which means
// "unchanged".
const maxID = math.MaxUint32 - 1

func validID(id int64) bool { return id >= 0 && id <= maxID }

// Write publishes p as the set of files that readers see, and reports whether the set changed. An
// invalid payload changes nothing.
//
// After an error, readers have the complete new set if changed is true, and otherwise the
// complete old set. The next Write repairs the rest.
func (w *Writer) Write(p Payload) (changed bool, err error) {
	p, err = p.Clean()
	if err != nil {
		return false, err
	}
	for name, f := range p {
		if f.UID != nil && !validID(*f.UID) {
			return false, fmt.Errorf("%q: owner %d, want 0 to %d", name, *f.UID, maxID)
		}
	}
	for _, d := range p.dirs(w.cfg.Dirs) {
		if _, ok := p[d]; ok {
			return false, fmt.Errorf("%w: %q is a file and a directory of Config.Dirs", ErrPath, d)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	dir, err := w.cfg.open(w.cfg.Dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.close()) }()

	current, err := published(dir)
	if err != nil {
		return false, err
	}
	if !w.same(dir, current, p) {
		// Remnants of a crash are removed first, since the disk may be full.
		if err := sweep(dir, current); err != nil {
			return false, err
		}
		if current, changed, err = w.publish(dir, p); err != nil {
			return changed, err
		}
	}
	return changed, errors.Join(link(dir, p), unlink(dir, p), sweep(dir, current))
}

// published returns the name of the directory to which ..data points. It returns "" if ..data
// does not exist, or points to anything else.
func published(dir files) (string, error) {
	to, err := dir.readlink(dataLink)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		if info, lerr := dir.lstat(dataLink); lerr == nil && info.Mode().Type() != fs.ModeSymlink {
			return "", nil
		}
		return "", err
	}
	if !isStamp(to) {
		return "", nil
	}
	return to, nil
}

// publish writes p into a new directory and makes ..data point to the directory. changed reports
// that ..data points to it. If changed is false, ..data is unchanged, and new files have been
// removed as far as possible.
func (w *Writer) publish(dir files, p Payload) (name string, changed bool, err error) {
	name, err = w.fill(dir, p)
	if err == nil {
		err = swap(dir, name)
	}
	if err == nil {
		if w.cfg.Sync {
			// Readers have the new set, but a power failure could still undo the rename.
			err = dir.syncDir(".")
		}
		return name, true, err
	}
	if name == "" {
		return "", false, err
	}
	switch now, lerr := dir.readlink(dataLink); {
	case lerr == nil && now == name:
		return name, true, err // the rename has happened although it returned an error
	case lerr != nil && !errors.Is(lerr, fs.ErrNotExist):
		return "", false, err // it is unknown which set is published; the next Write reads it again
	}
	_ = dir.remove(tempLink)
	return "", false, errors.Join(err, dir.removeAll(name))
}

// swap renames the new link over ..data.
func swap(dir files, name string) error {
	// A link that a crash left, or any other file with this name, would make every later Write
	// fail.
	if err := dir.removeAll(tempLink); err != nil {
		return err
	}
	if err := dir.symlink(name, tempLink); err != nil {
		return err
	}
	if info, err := dir.lstat(dataLink); err == nil && info.IsDir() {
		if err := dir.removeAll(dataLink); err != nil {
			return err
		}
	}
	return dir.rename(tempLink, dataLink)
}

// link creates the links for p's names. It does not touch a path that is not a link, since
// another volume may be mounted there.
func link(dir files, p Payload) error {
	var errs []error
	for name, uid := range p.tops() {
		errs = append(errs, linkOne(dir, name, uid))
	}
	return errors.Join(errs...)
}

func linkOne(dir files, name string, uid *int64) error {
	want := dataLink + "/" + name
	to, err := dir.readlink(name)
	switch {
	case err == nil && to == want:
		return nil
	case err == nil:
		if err := dir.remove(name); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		if info, serr := dir.lstat(name); serr == nil && info.Mode().Type() != fs.ModeSymlink {
			return nil
		}
		return err
	}
	if err := dir.symlink(want, name); err != nil {
		return err
	}
	if uid == nil {
		return nil
	}
	return dir.lchown(name, int(*uid), -1)
}

// unlink removes the links for names that p does not have.
func unlink(dir files, p Payload) error {
	tops := p.tops()
	var failed failures
	err := dir.list(".", func(e fs.DirEntry) bool {
		name := e.Name()
		if _, keep := tops[name]; keep || e.Type() != fs.ModeSymlink || strings.HasPrefix(name, "..") {
			return true
		}
		to, err := dir.readlink(name)
		if err == nil && to == dataLink+"/"+name {
			err = dir.remove(name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			failed.add(err)
		}
		return true
	})
	return errors.Join(err, failed.err())
}

// failures keeps the first maxErrors errors, and counts the others.
type failures struct {
	errs []error
	more int
}

// maxErrors limits the number of reported errors.
const maxErrors = 8

func (f *failures) add(err error) {
	switch {
	case err == nil:
	case len(f.errs) < maxErrors:
		f.errs = append(f.errs, err)
	default:
		f.more++
	}
}

func (f *failures) err() error {
	if f.more > 0 {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more errors", f.more))...)
	}
	return errors.Join(f.errs...)
}

// sweep removes everything that is not published: directories of other sets, and the temporary
// link.
func sweep(dir files, current string) error {
	var failed failures
	err := dir.list(".", func(e fs.DirEntry) bool {
		switch name := e.Name(); {
		case name == tempLink:
			failed.add(dir.removeAll(name))
		case name != current && e.IsDir() && isStamp(name):
			failed.add(dir.removeAll(name))
		}
		return true
	})
	return errors.Join(err, failed.err())
}
