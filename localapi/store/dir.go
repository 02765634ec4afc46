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

// maxFiles limits the number of files that a scan reads, and thus its time and memory.
const maxFiles = 20_000

// Dir is a Store of files in one directory. Only the owner can read the directory and the files,
// since they include Secrets.
type Dir struct {
	// path is for lstat and open, files for durable writes to the same directory.
	path  string
	files durable.Dir

	mu sync.Mutex // never held during a call to other code
	// seen has the last known state of each file. Writers update it too, so that Watch can tell
	// people's edits from this process's own writes.
	seen    map[string]entry
	writing map[string]int // number of running writes, by file
	writes  uint64         // number of finished writes
}

var _ Store = (*Dir)(nil)

// entry is the state of a file when it was last read or written.
type entry struct {
	sig      safefile.Signature // zero if the file was written and not read since
	revision string
	write    uint64 // number of the write that created this state
}

// NewDir returns a Store of the files in a directory, which Load creates if it does not exist.
// Only one Dir at a time may use a directory.
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
	// Names come from API requests: a name with a slash would lead out of the directory.
	if err := fileName(doc.Name); err != nil {
		return "", err
	}
	text, err := render(&doc)
	if err != nil {
		return "", err
	}
	// An edit between this check and the rename in Replace is lost. File systems have no
	// compare-and-swap; the window is as long as one write.
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

// Delete implements Store. Like Put, it compares the revision of the file with was. A missing file
// is not an error.
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

// begin prevents Watch from reading a file while this process writes it.
func (d *Dir) begin(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A counter instead of a flag: if writes overlap, the file must not be unmarked too early.
	d.writing[name]++
}

// end records a write, or a removal if rev is "". The next scan reads size and times of the
// file, since the file may have been edited meanwhile.
func (d *Dir) end(name, rev string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writing[name]--; d.writing[name] == 0 {
		delete(d.writing, name)
	}
	// After an error the file may be the old or the new one. The next scan reads it and reports
	// the content.
	if err != nil {
		return
	}
	// A scan compares this number with the one at its start, to find out whether its list of
	// names is older than a write.
	d.writes++
	if rev == "" {
		delete(d.seen, name)
		return
	}
	d.seen[name] = entry{revision: rev, write: d.writes}
}

// numbers is the file with the next number that Reserve returns.
const numbers = "revision"

// Reserve implements Store. If the file is lost, numbers start at the current time in
// microseconds, which is greater than any number used before.
func (d *Dir) Reserve(n uint64) (uint64, error) {
	first := uint64(max(time.Now().UnixMicro(), 1)) //nolint:gosec // positive
	text, err := d.files.Read(numbers)
	if err == nil {
		// A file that cannot be parsed counts as lost. The upper limit prevents first+n from
		// overflowing if a person has edited the number.
		if kept, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && kept < math.MaxUint64/2 {
			first = kept
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	// The file is durable before a number is returned, so that after a crash numbers are skipped,
	// never repeated.
	return first, d.files.Replace(numbers, fmt.Appendln(nil, first+n))
}

// fileName returns an error if a name is not valid for a file of this directory.
func fileName(name string) error {
	// 255 bytes is NAME_MAX of Linux. A leading dot is for hidden and temporary files.
	if len(name) > 255 || strings.HasPrefix(name, ".") || filepath.Base(name) != name || !strings.HasSuffix(name, suffix) {
		return fmt.Errorf("document name %.300q: want a file name of at most 255 bytes that ends in %s", name, suffix)
	}
	return nil
}

// at returns ErrConflict unless a file has the revision that the caller knows. It reads the file
// only if its signature differs from the one of the last read or write.
func (d *Dir) at(name, was string) error {
	// Not Stat, since a symbolic link must be treated as a link.
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
	if known.revision == was && known.sig == safefile.SignatureOf(fi) {
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

// revision returns the revision of a content. Half of a SHA-256 sum is enough to distinguish
// edits.
func revision(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// scan returns the documents that have changed since the last scan. The result again reports
// that a file is being written, so that another scan is needed soon.
func (d *Dir) scan() (docs []Document, again bool, err error) {
	d.mu.Lock()
	// Read before the names are listed: a file that is written later is missing in the list, but
	// must not count as deleted.
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
	// Known files that are gone are each reported once, as a Document that is Gone.
	defer d.mu.Unlock()
	for name, known := range d.seen {
		switch {
		case there[name]:
		case d.writing[name] > 0 || known.write > begun: // the list of names is older than the write
			again = true
		default:
			delete(d.seen, name)
			docs = append(docs, Document{Name: name})
		}
	}
	return docs, again, nil
}

// look reads a file if it has changed. The result changed means that doc has to be reported;
// busy means that the file is being written and has to be read again soon. d.mu is not held
// while the file is read.
func (d *Dir) look(name string) (doc Document, changed, busy bool) {
	path := filepath.Join(d.path, name)
	fi, err := os.Lstat(path)
	// The file was removed after the names were listed. The next scan reports it.
	if err != nil {
		return doc, false, !errors.Is(err, fs.ErrNotExist)
	}
	sig := safefile.SignatureOf(fi)
	d.mu.Lock()
	known, ok := d.seen[name]
	writing := d.writing[name] > 0
	writes := d.writes
	d.mu.Unlock()
	// The order matters: while this process writes a file, its signature says nothing, since it
	// may belong to either content.
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
		// An incomplete file must not be reported as damaged. But a writer that never closes the
		// file is waited for only for stuckWriter, since otherwise a forgotten editor would hide
		// the edit.
		if age := time.Since(fi.ModTime()); safefile.BeingWritten(f, age) && age < stuckWriter {
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
		return doc, false, true // this process has written the file meanwhile
	}
	// A file that was saved without a change has a new signature and the same revision. It is
	// recorded, not reported.
	d.seen[name] = entry{sig: sig, revision: doc.Revision, write: known.write}
	return doc, !ok || known.revision != doc.Revision || doc.Err != nil, false
}
