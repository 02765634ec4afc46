package network

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// store is the directory of records. A disk that does not answer blocks a call for
// the timeout at most, and calls for different IDs do not wait for each other.
type store struct {
	synced, quick durable.Dir // the same one
	guards        string
	timeout       time.Duration
	calls         detached.Queue
	locks         detached.Queue // many may wait for long
}

func newStore(dir string, timeout time.Duration) *store {
	d := durable.Dir{Path: filepath.Join(dir, "records"), Disk: durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: maxFile}}
	s := &store{quick: d, synced: d, guards: filepath.Join(dir, "guards"), timeout: timeout}
	s.synced.Sync = true
	s.locks.Limit, s.calls.Wait = maxAttachments, true
	return s
}

// do calls f after earlier calls for the same name have returned. do may return before f does, so
// f must not share variables with the caller.
func (s *store) do(ctx context.Context, name string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := detached.Next(ctx, &s.calls, name, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// plan writes a record. If sync is set, the record survives a power failure.
func (s *store) plan(ctx context.Context, r *record, sync bool) error {
	name := fileName(r.Attachment.ID)
	b, err := encodeFile(r)
	if err != nil {
		return err
	}
	dir := s.quick
	if sync {
		dir = s.synced
	}
	return s.do(ctx, name, func() error { return dir.Replace(name+recordSuffix, b) })
}

// progress writes the progress of an attachment.
func (s *store) progress(ctx context.Context, id string, p progress) error {
	name := fileName(id)
	b, err := encodeFile(p)
	if err != nil {
		return err
	}
	return s.do(ctx, name, func() error { return s.quick.Replace(name+progressSuffix, b) })
}

// remove removes all files of an ID. It removes the record first, since a progress without a record
// is ignored.
func (s *store) remove(ctx context.Context, id string) error {
	name := fileName(id)
	return s.do(ctx, name, func() error {
		return errors.Join(s.quick.Remove(name+recordSuffix), s.quick.Remove(name+progressSuffix))
	})
}

// kept is a record with its progress.
type kept struct {
	record   *record
	progress *progress // nil if the attachment has only a record
}

// damage is a record that could not be read.
type damage struct {
	name  string // name of the record's file, without the suffix
	err   error
	aside string // its new name; "" if it could not be renamed
}

// contents are the records in a store when it was opened.
type contents struct {
	kept    []kept
	damaged []damage
}

// open creates the store's directories and reads all records.
func (s *store) open(ctx context.Context) (contents, error) {
	type result struct{ contents }
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := detached.Next(ctx, &s.calls, "", func() (result, error) {
		c, err := s.read(ctx)
		return result{c}, err
	})
	return r.contents, err
}

func (s *store) read(ctx context.Context) (contents, error) {
	var out contents
	if err := s.quick.Prepare(); err != nil {
		return out, err
	}
	if err := s.quick.Disk.MakeDir(s.guards); err != nil {
		return out, err
	}
	files, err := s.quick.List()
	if err != nil {
		return out, err
	}
	var orphans []string
	records := map[string]bool{}
	for _, file := range files {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		name, ok := strings.CutSuffix(file, recordSuffix)
		if !ok {
			if strings.HasSuffix(file, progressSuffix) {
				orphans = append(orphans, file)
			}
			continue
		}
		k, err := s.readOne(name)
		switch {
		case err == nil:
			records[name] = true
			out.kept = append(out.kept, k)
		case errors.Is(err, errDamaged), errors.Is(err, safefile.ErrTooLarge), errors.Is(err, safefile.ErrNotRegular):
			out.damaged = append(out.damaged, damage{name, err, s.quick.SetAside(file)})
		case !errors.Is(err, fs.ErrNotExist):
			return out, err
		}
	}
	if err := s.clearGuards(records); err != nil {
		return out, err
	}
	for _, file := range orphans {
		if !records[strings.TrimSuffix(file, progressSuffix)] {
			_ = s.quick.Remove(file) // it means nothing
		}
	}
	return out, nil
}

// clearGuards removes the guards that belong to no record.
func (s *store) clearGuards(records map[string]bool) error {
	names, err := s.quick.Disk.List(s.guards)
	for _, name := range names {
		if !records[name] {
			err = errors.Join(err, dropGuard(s.guards, name))
		}
	}
	return err
}

func (s *store) readOne(name string) (kept, error) {
	file, err := s.quick.Read(name + recordSuffix)
	if err != nil {
		return kept{}, err
	}
	r, err := decodeRecord(name, file)
	if err != nil {
		return kept{}, err
	}
	out := kept{record: r}
	if file, err := s.quick.Read(name + progressSuffix); err == nil {
		out.progress = decodeProgress(r, file)
	} else if errors.Is(err, safefile.ErrTooLarge) || errors.Is(err, safefile.ErrNotRegular) || errors.Is(err, fs.ErrNotExist) {
		return out, nil
	} else {
		return kept{}, err // the disk may answer later
	}
	return out, nil
}

// guard takes the guard of a name (takeGuard), and reports whether it killed processes.
func (s *store) guard(ctx context.Context, name string, wait time.Duration) (*os.File, bool, error) {
	type taken struct {
		f      *os.File
		killed bool
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout+wait+afterKill)
	defer cancel()
	got, err := detached.Next(ctx, &s.locks, name, func() (taken, error) {
		f, killed, err := takeGuard(ctx, s.guards, name, wait)
		if err == nil && ctx.Err() != nil { // the caller has gone
			_ = f.Close()
			f, err = nil, context.Cause(ctx)
		}
		return taken{f, killed}, err
	})
	return got.f, got.killed, err
}
