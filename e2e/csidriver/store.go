package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/rmtree"
)

// volume is what the driver stores about one volume, in JSON.
type volume struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Disk  bool   `json:"disk,omitempty"` // an image with loop devices; else a directory
	Bytes int64  `json:"bytes"`
	// Format is the content of an image: the name of a file system, or "raw". It is "" if the
	// image is empty.
	Format       string            `json:"format,omitempty"`
	FromVolume   string            `json:"fromVolume,omitempty"`
	FromSnapshot string            `json:"fromSnapshot,omitempty"`
	Mutable      map[string]string `json:"mutable,omitempty"`
	// Ephemeral volumes are deleted with their pod. The ID of a Given volume comes
	// from the caller.
	Ephemeral bool `json:"ephemeral,omitempty"`
	Given     bool `json:"given,omitempty"`
	// Attached has the nodes to which the volume is attached. The value is true if the volume is
	// read-only there.
	Attached map[string]bool `json:"attached,omitempty"`
	Staged   *stage          `json:"staged,omitempty"`
	// Targets has the paths at which the volume is published, or was about to be published. The
	// value is true if the volume is read-only there.
	Targets map[string]bool `json:"targets,omitempty"`
}

// raw is the Format of an image that pods used as a block device.
const raw = "raw"

// stage is where a volume is staged, or was about to be.
type stage struct {
	Path  string `json:"path"`
	Block bool   `json:"block,omitempty"`
	Type  string `json:"type,omitempty"` // the file system of the request
}

// snapshot is what the driver stores about one snapshot, in JSON.
type snapshot struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Source  string    `json:"source"`
	Disk    bool      `json:"disk,omitempty"`
	Format  string    `json:"format,omitempty"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
}

func (v volume) id() string   { return v.ID }
func (s snapshot) id() string { return s.ID }

func (v volume) clone() volume {
	v.Mutable, v.Attached, v.Targets = maps.Clone(v.Mutable), maps.Clone(v.Attached), maps.Clone(v.Targets)
	if v.Staged != nil {
		s := *v.Staged
		v.Staged = &s
	}
	return v
}

func (s snapshot) clone() snapshot { return s }

// mounted returns the paths at which a volume is mounted, or may be after a call that was
// interrupted.
func (v volume) mounted() []string {
	out := slices.Sorted(maps.Keys(v.Targets))
	if v.Staged != nil && !v.Staged.Block {
		out = append(out, v.Staged.Path)
	}
	return out
}

// record is a volume or a snapshot.
type record[T any] interface {
	id() string
	clone() T
}

// store is a directory of records. All records are also in memory.
type store[T record[T]] struct {
	dir durable.Dir

	writing sync.Mutex
	mu      sync.Mutex
	records map[string]T
}

// maxRecord limits the size of a record in bytes. Most of a record are the paths of its
// targets.
const maxRecord = 8 << 20

const suffix = ".json"

func openStore[T record[T]](path string) (*store[T], error) {
	s := &store[T]{
		dir:     durable.Dir{Path: path, Disk: durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: maxRecord}, Sync: true},
		records: map[string]T{},
	}
	if err := s.dir.Prepare(); err != nil {
		return nil, err
	}
	names, err := s.dir.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		data, err := s.dir.Read(name)
		if err != nil {
			return nil, err
		}
		var r T
		if err := json.Unmarshal(data, &r); err != nil || r.id() != id || !validID(id) {
			// Stop: sweep would delete the data of the volume.
			return nil, fmt.Errorf("record %s is damaged; mend or remove it", filepath.Join(path, name))
		}
		s.records[id] = r
	}
	return s, nil
}

func (s *store[T]) get(id string) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[id]
	if ok {
		r = r.clone()
	}
	return r, ok
}

// all returns the records in the order of their IDs.
func (s *store[T]) all() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]T, 0, len(s.records))
	for _, r := range s.records {
		out = append(out, r.clone())
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.id(), b.id()) })
	return out
}

// put writes a record.
func (s *store[T]) put(r T) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	_, known := s.records[r.id()]
	full := !known && len(s.records) >= maxRecords
	s.mu.Unlock()
	if full {
		return status.Errorf(codes.ResourceExhausted, "there are %d records already", maxRecords)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := s.dir.Replace(r.id()+suffix, data); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[r.id()] = r.clone()
	return nil
}

// remove deletes a record. A missing record is not an error.
func (s *store[T]) remove(id string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.dir.Remove(id + suffix); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
	return nil
}

// ids matches valid IDs of records, which are file names too.
var ids = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,127}$`)

func validID(id string) bool { return ids.MatchString(id) }

// data returns the path of a volume's or a snapshot's directory or image.
func (d *driver) data(id string) string { return filepath.Join(d.state, "data", id) }

// sweep deletes data without a record, which a process that was killed has left.
func (d *driver) sweep() error {
	dir := filepath.Join(d.state, "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names, err := entries(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		_, isVolume := d.volumes.get(name)
		_, isSnapshot := d.snapshots.get(name)
		if !isVolume && !isSnapshot {
			errs = append(errs, d.removeData(name))
		}
	}
	return errors.Join(errs...)
}

// removeData removes the directory or the image of a volume or a snapshot.
func (d *driver) removeData(id string) error {
	path := d.data(id)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		if err := d.disks.detach(path); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return rmtree.Remove(path)
}
