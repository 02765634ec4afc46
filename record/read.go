package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Filter selects entries. The zero value selects all.
type Filter struct {
	// Namespace and Name select the entries of the pods with this name, and UID selects the
	// entries of one pod.
	Namespace, Name string
	UID             types.UID
	// Node selects the entries about the node. If a pod is selected, they are added to its
	// entries.
	Node bool
	// Since and Until limit the time; zero is no limit.
	Since, Until time.Time
}

// Matches reports whether the filter selects an entry.
func (f Filter) Matches(e *Entry) bool {
	if !f.Since.IsZero() && e.At.Before(f.Since) || !f.Until.IsZero() && e.At.After(f.Until) {
		return false
	}
	if f.Namespace == "" && f.Name == "" && f.UID == "" {
		return !f.Node || e.Pod == (Pod{})
	}
	if e.Pod == (Pod{}) {
		return f.Node
	}
	return (f.Namespace == "" || f.Namespace == e.Pod.Namespace) && (f.Name == "" || f.Name == e.Pod.Name) && (f.UID == "" || f.UID == e.Pod.UID)
}

// maxEntries limits the entries that are read of one directory or file.
const maxEntries = 1 << 20

// Read returns the entries of a recorder's directory that a filter selects, in the order in which
// they were recorded. The recorder may be running. A damaged part of a file is a [Gap] in the
// result. An error ends the sequence. A missing directory has no entries.
func Read(dir string, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		d, names, err := segments(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer func() { _ = d.Close() }()
		for i, name := range names {
			file, err := d.Open(name)
			if errors.Is(err, fs.ErrNotExist) { // the recorder has removed the oldest
				continue
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			last := time.Time{}
			err = scan(file, func(e Entry) bool {
				last = e.At
				return !f.Matches(&e) || yield(e, nil)
			})
			_ = file.Close()
			switch {
			case errors.Is(err, errStopped):
				return
			case errors.Is(err, ErrVersion):
			case errors.Is(err, ErrDamaged):
				// The recorder may be writing the end of the last file.
				gap := Entry{At: last, Fact: &Gap{Damaged: true}}
				if i < len(names)-1 && !yield(gap, nil) {
					return
				}
			case err != nil:
				yield(Entry{}, err)
				return
			}
		}
	}
}

// ReadFile returns the entries of a file that [Write] has written. Unlike [Read], it returns an
// error for a damaged file, which wraps ErrDamaged, and the entries before the damage.
func ReadFile(r io.Reader) ([]Entry, error) {
	var out []Entry
	limited := &io.LimitedReader{R: r, N: maxFileBytes + 1}
	err := scan(limited, func(e Entry) bool {
		out = append(out, e)
		return len(out) < maxFileEntries
	})
	switch {
	case errors.Is(err, errStopped):
		err = fmt.Errorf("%w: more than %d entries", ErrDamaged, maxFileEntries)
	case limited.N == 0:
		err = fmt.Errorf("%w: more than %d bytes", ErrDamaged, maxFileBytes)
	}
	return out, err
}

// Limits for a file.
const (
	maxFileEntries = 1 << 17
	maxFileBytes   = 64 << 20
)

// Write writes entries in the format of a record file, for [ReadFile].
func Write(w io.Writer, entries []Entry) error {
	if _, err := io.WriteString(w, header); err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		fact := encode(e.Fact)
		key, state := keyOf(e, fact)
		if _, err := w.Write(encodeEntry(e, fact, key, state).text); err != nil {
			return err
		}
	}
	return nil
}

// errStopped ends a scan.
var errStopped = errors.New("stopped")

// scan calls do for each entry of a known kind until it returns false.
func scan(r io.Reader, do func(Entry) bool) error {
	s, err := newScanner(r)
	if err != nil {
		return err
	}
	for range maxEntries {
		switch err := s.next(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		e, known, err := s.line.entry()
		if err != nil {
			return err
		}
		if known && !do(e) {
			return errStopped
		}
	}
	return fmt.Errorf("%w: more than %d entries", ErrDamaged, maxEntries)
}

// suffix is the suffix of a recorder's files. Before it, a name has 8 hexadecimal digits.
const suffix = ".record"

// maxSegments limits the files of a directory that are read.
const maxSegments = 1024

// segments opens a recorder's directory and returns the names of its files, oldest first.
func segments(dir string) (*safefile.Dir, []string, error) {
	d, err := safefile.OpenDir(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return nil, nil, err
	}
	entries, err := d.Entries(maxSegments)
	if err != nil {
		_ = d.Close()
		return nil, nil, err
	}
	var names []string
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), suffix)
		if _, hexadecimal := hexNumber([]byte(digits)); ok && hexadecimal && len(digits) == 8 {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return d, names, nil
}

// Pods returns the pods with entries in a recorder's directory, and the name of the node. Pods are
// sorted by their newest entry, newest last. If several pods have the same name, only the last one
// is returned.
func Pods(dir string) (pods []Pod, node string, err error) {
	type name struct{ namespace, name string }
	latest := map[name]int{}
	at := map[name]Pod{}
	n := 0
	for e, err := range Read(dir, Filter{}) {
		if err != nil {
			return nil, "", err
		}
		n++
		if b, ok := e.Fact.(*Begin); ok && b.Node != "" {
			node = b.Node
		}
		if e.Pod != (Pod{}) {
			k := name{e.Pod.Namespace, e.Pod.Name}
			latest[k], at[k] = n, e.Pod
		}
	}
	for _, p := range at {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return latest[name{a.Namespace, a.Name}] - latest[name{b.Namespace, b.Name}]
	})
	return pods, node, nil
}
