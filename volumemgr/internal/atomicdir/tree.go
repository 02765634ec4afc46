package atomicdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// stampLayout is the first part of the name of a set's directory, a time in UTC. A random number
// follows.
const stampLayout = "..2006_01_02_15_04_05."

// isStamp reports whether name is the name of a set's directory.
func isStamp(name string) bool {
	if len(name) <= len(stampLayout) {
		return false
	}
	if _, err := time.Parse(stampLayout, name[:len(stampLayout)]); err != nil {
		return false
	}
	_, err := strconv.ParseUint(name[len(stampLayout):], 10, 64)
	return err == nil
}

// attributes are the owner and mode of a file or directory.
type attributes struct {
	mode     fs.FileMode
	uid, gid int64 // -1 leaves it unchanged
}

func (w *Writer) dirAttributes() attributes {
	a := attributes{mode: fs.ModeDir | dirMode, uid: -1, gid: -1}
	if w.cfg.Group != nil {
		a.mode |= groupDirMode | fs.ModeSetgid
		a.gid = *w.cfg.Group
	}
	return a
}

func (w *Writer) fileAttributes(f File) attributes {
	a := attributes{mode: f.Mode.Perm(), uid: -1, gid: -1}
	if f.UID != nil {
		a.uid = *f.UID
	}
	if w.cfg.Group != nil {
		a.mode |= groupRead
		a.gid = *w.cfg.Group
	}
	return a
}

// give sets a file's attributes. The owner is set first, since changing it clears mode bits.
func (a attributes) give(dir files, name string) error {
	if a.uid >= 0 || a.gid >= 0 {
		if err := dir.lchown(name, int(a.uid), int(a.gid)); err != nil {
			return err
		}
	}
	return dir.chmod(name, a.mode&^fs.ModeType)
}

// fit reports whether a file has the attributes. If an attribute is not set, the file must have the
// same one as created, a file that the process has created.
func (a attributes) fit(info, created fs.FileInfo) bool {
	if info.Mode() != a.mode {
		return false
	}
	uid, gid, ok := owner(info)
	if !ok {
		return true
	}
	if ownUID, _, known := owner(created); a.uid >= 0 && uid != a.uid || a.uid < 0 && known && uid != ownUID {
		return false
	}
	return a.gid < 0 || gid == a.gid
}

// fill writes p into a new directory. If it fails, name is the directory to remove, or "" if none
// was created.
func (w *Writer) fill(dir files, p Payload) (name string, err error) {
	for try := 0; ; try++ {
		name = time.Now().UTC().Format(stampLayout) + strconv.FormatUint(uint64(rand.Uint32()), 10)
		err := dir.mkdir(name)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) || try == 100 {
			return "", err
		}
	}
	dirs := p.dirs(w.cfg.Dirs)
	for _, d := range dirs {
		if err := dir.mkdir(filepath.Join(name, d)); err != nil {
			return name, err
		}
	}
	for _, f := range slices.Sorted(maps.Keys(p)) {
		at := filepath.Join(name, f)
		if err := dir.create(at, p[f].Data, w.cfg.Sync); err != nil {
			return name, err
		}
		if err := w.fileAttributes(p[f]).give(dir, at); err != nil {
			return name, err
		}
	}
	// Deepest directories first, since a directory may become read-only only after its content is
	// complete.
	slices.Reverse(dirs)
	for _, d := range append(dirs, "") {
		at := filepath.Join(name, d)
		if err := w.dirAttributes().give(dir, at); err != nil {
			return name, err
		}
		if w.cfg.Sync {
			if err := dir.syncDir(at); err != nil {
				return name, err
			}
		}
	}
	if w.cfg.Prepare != nil {
		if err := w.cfg.Prepare(filepath.Join(w.cfg.Dir, name)); err != nil {
			return name, fmt.Errorf("call Config.Prepare: %w", err)
		}
	}
	return name, nil
}

// same reports whether the published directory equals p. It returns false for an unreadable
// directory, so that a new set replaces that.
func (w *Writer) same(dir files, current string, p Payload) bool {
	if current == "" {
		return false
	}
	own, err := dir.lstat(current)
	if err != nil || !w.dirAttributes().fit(own, own) {
		return false
	}
	dirs := p.dirs(w.cfg.Dirs)
	want := len(p) + len(dirs)
	found := make(map[string]fs.FileInfo, want)
	if !walk(dir, current, "", want, found) || len(found) != want {
		return false
	}
	for _, d := range dirs {
		if info := found[d]; info == nil || !w.dirAttributes().fit(info, own) {
			return false
		}
	}
	for name, f := range p {
		info := found[name]
		if info == nil || !w.fileAttributes(f).fit(info, own) || info.Size() != int64(len(f.Data)) {
			return false
		}
		data, err := dir.readFile(filepath.Join(current, name), int64(len(f.Data)))
		if err != nil || !bytes.Equal(data, f.Data) {
			return false
		}
	}
	return true
}

// walk finds everything below root. It returns false if something cannot be read, if something is
// neither a file nor a directory, or if there are more than limit entries.
func walk(dir files, root, below string, limit int, found map[string]fs.FileInfo) bool {
	var dirs []string
	ok := true
	err := dir.list(filepath.Join(root, below), func(e fs.DirEntry) bool {
		name := filepath.Join(below, e.Name())
		info, err := dir.lstat(filepath.Join(root, name))
		if ok = err == nil && len(found) < limit && (info.IsDir() || info.Mode().IsRegular()); !ok {
			return false
		}
		found[name] = info
		if info.IsDir() {
			dirs = append(dirs, name)
		}
		return true
	})
	if err != nil || !ok {
		return false
	}
	for _, d := range dirs {
		if !walk(dir, root, d, limit, found) {
			return false
		}
	}
	return true
}
