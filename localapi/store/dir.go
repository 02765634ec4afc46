package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// suffix is the suffix of object files. Other files, such as an editor's backups, are
// ignored.
const suffix = ".yaml"

// maxFiles is how many files are looked at. It bounds the time and the memory of
// a scan.
const maxFiles = 20_000

// Dir is a Store of files in one directory. It and the files are for their owner's
// eyes alone: Secrets are among them.
type Dir struct {
	// path is used for lstat and open, files for durable writes to the same place.
	path  string
	files durable.Dir

	mu sync.Mutex // never held while others are called
	// seen has the last known state by file name. Watch and the writers share it, which
	// is how Watch knows the edits of people from this process's own.
	seen    map[string]entry
	writing map[string]int // files that Put and Delete are at
	writes  uint64         // that have ended
}

var _ Store = (*Dir)(nil)

// entry is a file as it was read or written last.
type entry struct {
	sig      signature // the zero value for one that was written and not looked at since
	revision string
	write    uint64 // the number of the write that made it
}

// signature is what changes when a file is written or replaced.
type signature struct {
	size, inode, mtime, ctime int64
}

// NewDir returns a Store of the files in a directory, which Load makes if it is
// missing. One value at a time may have a directory.
func NewDir(path string) *Dir {
	disk := durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: maxFile}
	return &Dir{path: path, files: durable.Dir{Path: path, Disk: disk, Sync: true}, seen: map[string]entry{}, writing: map[string]int{}}
}

// Load implements Store.
func (d *Dir) Load(context.Context) ([]Document, error) {
	if err := d.files.Prepare(); err != nil {
		return nil, err
	}
	docs, _, err := d.scan()
	return docs, err
}

// Put implements Store.
func (d *Dir) Put(doc Document, was string) (string, error) {
	// Names are made of those in requests to the API: one with a slash would lead out of the
	// directory.
	if err := fileName(doc.Name); err != nil {
		return "", err
	}
	text, err := render(&doc)
	if err != nil {
		return "", err
	}
	// An edit between this look and the rename in Replace is overwritten. Nothing in
	// the file system compares and swaps; the window is the length of one write.
	if err := d.at(doc.Name, was); err != nil {
		return "", err
	}
	rev := revision(text)
	d.begin(doc.Name)
	err = d.files.Replace(doc.Name, text)
	d.end(doc.Name, rev, err)
	if err != nil {
		return "", fmt.Errorf("write object: %w", err)
	}
	return rev, nil
}

// Delete implements Store. It compares the revision was as Put does. A missing file is no
// error.
func (d *Dir) Delete(name, was string) error {
	if err := fileName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(d.path, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := d.at(name, was); err != nil {
		return err
	}
	d.begin(name)
	err := d.files.Remove(name)
	d.end(name, "", err)
	if err != nil {
		return fmt.Errorf("remove object: %w", err)
	}
	return nil
}

// begin keeps Watch from reading a file of which it cannot know who wrote it.
func (d *Dir) begin(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A count and not a flag, although the Store's writers come one at a time: an
	// overlap must never unmark a file too early.
	d.writing[name]++
}

// end remembers a file that was written, or removed if it has no revision. Its signature
// is left to the next look: somebody may have edited the file since.
func (d *Dir) end(name, rev string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writing[name]--; d.writing[name] == 0 {
		delete(d.writing, name)
	}
	// After an error the file may be the old one or the new one: the next scan reads it
	// and reports what it finds.
	if err != nil {
		return
	}
	// A scan compares this number with the one at its start, to know that its list of
	// names is older than a write.
	d.writes++
	if rev == "" {
		delete(d.seen, name)
		return
	}
	d.seen[name] = entry{revision: rev, write: d.writes}
}

// numbers is the file of the next number that Reserve returns.
const numbers = "revision"

// Reserve implements Store. Where the file is lost, the clock takes its place: it counts
// microseconds, faster than anybody takes numbers one by one.
func (d *Dir) Reserve(n uint64) (uint64, error) {
	first := uint64(max(time.Now().UnixMicro(), 1)) //nolint:gosec // positive
	text, err := d.files.Read(numbers)
	if err == nil {
		// A file that cannot be parsed is treated as lost. The upper bound keeps
		// first+n from overflowing after somebody has edited the number.
		if kept, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && kept < math.MaxUint64/2 {
			first = kept
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	// The file is on the disk before a number is handed out: after a crash numbers are
	// skipped, never repeated.
	return first, d.files.Replace(numbers, fmt.Appendln(nil, first+n))
}

// fileName refuses what would be no file of this directory.
func fileName(name string) error {
	// 255 bytes is NAME_MAX of Linux. A leading dot is left to hidden and temporary
	// files.
	if len(name) > 255 || strings.HasPrefix(name, ".") || filepath.Base(name) != name || !strings.HasSuffix(name, suffix) {
		return fmt.Errorf("document name %.300q: want a file name of at most 255 bytes that ends in %s", name, suffix)
	}
	return nil
}

// at makes sure that a file has the content that the caller knows of. It returns
// ErrConflict if not, and reads the file only where its signature does not vouch for
// the content.
func (d *Dir) at(name, was string) error {
	// Not Stat: a symbolic link that somebody put here is judged as the link that it
	// is.
	fi, err := os.Lstat(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		if was == "" {
			return nil
		}
		return ErrConflict
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	known := d.seen[name]
	d.mu.Unlock()
	if known.revision == was && known.sig == signatureOf(fi) {
		return nil
	}
	text, err := d.files.Read(name)
	if err != nil {
		return err
	}
	if revision(text) != was {
		return ErrConflict
	}
	return nil
}

// revision is that of a content. Half of a SHA-256 sum is enough to tell edits apart.
func revision(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// scan returns what is otherwise than it was at the last look, and whether some file
// is being written, so that it is to be looked at again soon.
func (d *Dir) scan() (docs []Document, again bool, err error) {
	d.mu.Lock()
	// Read before the names are listed: a file that a writer adds later is missing from
	// the list, and must not be taken for deleted.
	begun := d.writes
	d.mu.Unlock()
	names, err := safefile.Names(d.path, maxFiles)
	if err != nil {
		return nil, false, err
	}
	there := map[string]bool{}
	for _, name := range names {
		if fileName(name) != nil {
			continue
		}
		there[name] = true
		doc, changed, busy := d.look(name)
		again = again || busy
		if changed {
			docs = append(docs, doc)
		}
	}
	d.mu.Lock()
	// Files that were known and are gone: each is reported once, as a Document that is
	// Gone.
	defer d.mu.Unlock()
	for name, known := range d.seen {
		switch {
		case there[name]:
		case d.writing[name] > 0 || known.write > begun: // missing from a list that is older
			again = true
		default:
			delete(d.seen, name)
			docs = append(docs, Document{Name: name})
		}
	}
	return docs, again, nil
}

// look reads a file if it changed. changed means that doc is to be reported, busy that
// the file is to be looked at again soon. d.mu is not held while the file is read.
func (d *Dir) look(name string) (doc Document, changed, busy bool) {
	path := filepath.Join(d.path, name)
	fi, err := os.Lstat(path)
	// A file that went after the list was made is found missing by the next scan.
	if err != nil {
		return doc, false, !errors.Is(err, fs.ErrNotExist)
	}
	sig := signatureOf(fi)
	d.mu.Lock()
	known, ok := d.seen[name]
	writing := d.writing[name] > 0
	writes := d.writes
	d.mu.Unlock()
	// The order matters: a file under a writer of this process is never judged by its
	// signature, which may be of either content.
	switch {
	case writing:
		return doc, false, true
	case ok && known.sig == sig:
		return doc, false, false
	}
	f, err := safefile.Open(path)
	if err != nil {
		doc = Document{Name: name, Err: err}
	} else {
		defer func() { _ = f.Close() }()
		// Half of a file is not reported as damaged. A writer that never closes the
		// file is waited for only as long as stuckWriter, or a forgotten editor would
		// hide the edit.
		if age := time.Since(fi.ModTime()); beingWritten(f, age) && age < stuckWriter {
			return doc, false, true
		}
		text, err := safefile.Read(f, maxFile)
		if err != nil {
			doc = Document{Name: name, Err: err}
		} else {
			doc = parseDocument(name, text)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen[name] != known || d.writing[name] > 0 || !ok && d.writes != writes {
		return doc, false, true // a writer of ours came between
	}
	// A file that was saved without a change has a new signature and the old revision:
	// it is noted, not reported.
	d.seen[name] = entry{sig: sig, revision: doc.Revision, write: known.write}
	return doc, !ok || known.revision != doc.Revision || doc.Err != nil, false
}
