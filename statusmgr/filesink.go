package statusmgr

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/durable"
)

// FileSinkConfig configures a [FileSink]. Dir is required.
type FileSinkConfig struct {
	// Dir is made if it does not exist. No other program may write in it.
	Dir string
	// Sync makes each write durable over a power failure. Without it only a crash of the
	// process is safe.
	Sync bool
	// OnCorrupt is called for each damaged file. setAside is the path to which the file was
	// renamed, or "" if that failed. If OnCorrupt is nil, nothing is called.
	OnCorrupt func(file, setAside string, err error)

	// files makes the calls of the operating system; tests replace it.
	files durable.Disk
}

// FileSink is a sink of statusmgr for a node that stands alone: one
// JSON file per pod, a v1.Pod with metadata and status as kubectl would print
// it.
//
//	sink, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: "/var/lib/agent/status"})
//	if err != nil {
//		return err
//	}
//	m, err := statusmgr.New(statusmgr.Config{Sink: sink})
//
// The files are DIR/<namespace>_<name>_<uid>.json, readable for owner and group. A file whose
// content would not change is not written. After a restart [FileSink.Load] returns the published
// statuses, and [FileSink.Prune] removes the files of pods that do not exist any more.
//
// # Faults
//
// A file is written beside the old one and renamed over it: a reader, and a crash of the process,
// see the old status or the new one. With FileSinkConfig.Sync this is true after a power failure as
// well. If the disk is full, the write fails and the old file stays. A damaged file is renamed to
// <file>.corrupt-N, reported to FileSinkConfig.OnCorrupt, and counts as missing. Half-written files
// that a crash left are removed at the first use.
//
// Its methods may be called from any goroutine.
type FileSink struct {
	cfg FileSinkConfig
	dir durable.Dir

	// mu guards the directory as well: two writes to one file must not replace each
	// other.
	mu     sync.Mutex
	opened bool
}

// NewFileSink checks cfg and returns a Sink. It makes no directory or file before its first use.
func NewFileSink(cfg FileSinkConfig) (*FileSink, error) {
	if cfg.Dir == "" {
		return nil, errors.New("filesink: FileSinkConfig.Dir is required")
	}
	if cfg.files == nil {
		cfg.files = durable.OS{DirMode: 0o750, FileMode: 0o640}
	}
	return &FileSink{cfg: cfg, dir: durable.Dir{Path: cfg.Dir, Disk: cfg.files, Sync: cfg.Sync}}, nil
}

// open makes the directory, and removes half-written files that a crash left. It is called at the
// first use and not at the start: if the disk is not mounted yet, only a write fails, which is
// repeated. Called with s.mu held.
func (s *FileSink) open() error {
	if s.opened {
		return nil
	}
	if err := s.dir.Prepare(); err != nil {
		return fmt.Errorf("prepare directory of status files: %w", err)
	}
	s.opened = true
	return nil
}

// Update writes the pod's file, unless the file has the same content already.
func (s *FileSink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	content, err := encode(pod, status)
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(ctx.Err(), s.open()); err != nil {
		return err
	}
	name := fileName(pod)
	// Reading is cheaper than a write and a sync, and spares flash memory. A file
	// that cannot be read is replaced.
	if old, err := s.dir.Read(name); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := s.dir.Replace(name, content); err != nil {
		return fmt.Errorf("write status file of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Delete removes the pod's file. It is not an error if the file does not exist.
func (s *FileSink) Delete(ctx context.Context, pod *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(ctx.Err(), s.open()); err != nil {
		return err
	}
	return s.remove(fileName(pod))
}

// remove removes the file name in the directory. Called with s.mu held.
func (s *FileSink) remove(name string) error {
	if err := s.dir.Remove(name); err != nil {
		return fmt.Errorf("remove status file: %w", err)
	}
	return nil
}

// Load returns the statuses in all files. Damaged files are renamed; see [FileSink].
func (s *FileSink) Load(ctx context.Context) (map[types.UID]v1.PodStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return nil, err
	}
	names, err := s.dir.List()
	if err != nil {
		return nil, fmt.Errorf("list status files: %w", err)
	}
	out := map[types.UID]v1.PodStatus{}
	var errs []error
	for _, name := range names {
		// Files that were set aside end in .corrupt-N.
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		// What was read so far is returned: a part is better than nothing for the
		// comparison of first statuses.
		if err := ctx.Err(); err != nil {
			return out, err
		}
		content, err := s.dir.Read(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("read status file: %w", err))
			continue
		}
		pod, err := decode(name, content)
		if err != nil {
			// Renamed and not removed, for a person to look at. The next Update of
			// the pod writes a new file.
			where := s.dir.SetAside(name)
			if s.cfg.OnCorrupt != nil {
				s.cfg.OnCorrupt(filepath.Join(s.cfg.Dir, name), where, err)
			}
			continue
		}
		out[pod.UID] = pod.Status
	}
	return out, errors.Join(errs...)
}

// Prune removes the files of pods that keep does not name. Other files, and
// damaged ones, stay.
func (s *FileSink) Prune(keep map[types.UID]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return err
	}
	names, err := s.dir.List()
	if err != nil {
		return fmt.Errorf("list status files: %w", err)
	}
	// UIDs are compared as they are written in names, so that no file has to be
	// read.
	kept := make(map[string]bool, len(keep))
	for uid, k := range keep {
		if k {
			kept[safe(string(uid), maxUID)] = true
		}
	}
	var errs []error
	for _, name := range names {
		parts := strings.Split(strings.TrimSuffix(name, suffix), "_")
		if strings.HasSuffix(name, suffix) && len(parts) == 3 && !kept[parts[2]] {
			errs = append(errs, s.remove(name))
		}
	}
	return errors.Join(errs...)
}

// encode returns the content of a pod's file.
func encode(pod *v1.Pod, status v1.PodStatus) ([]byte, error) {
	// Only the metadata that identifies the pod and its age is written: annotations may be large,
	// and may hold secrets.
	content, err := json.MarshalIndent(&v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Status: status,
	}, "", "  ")
	return append(content, '\n'), err
}

// decode parses a file's content. It returns an error if the content is of another pod than the
// file's name says: otherwise a file that was copied or renamed by hand would count as the status
// of another pod.
func decode(name string, content []byte) (*v1.Pod, error) {
	var pod v1.Pod
	if err := json.Unmarshal(content, &pod); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorruptFile, name, err)
	}
	if pod.UID == "" || fileName(&pod) != name {
		return nil, fmt.Errorf("%w: %s is for pod %s/%s with UID %q", ErrCorruptFile, name, pod.Namespace, pod.Name, pod.UID)
	}
	return &pod, nil
}

// ErrCorruptFile is wrapped by the errors that FileSinkConfig.OnCorrupt gets.
var ErrCorruptFile = errors.New("status file is damaged")
