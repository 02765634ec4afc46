package podmgr

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// stuckWriter is how long after its last change a file that somebody still has
// open for writing is no longer waited for: it is read if nothing of it is in
// effect yet, and a problem otherwise.
const stuckWriter = 2 * time.Second

// maxManifest is the largest manifest that is read, in bytes (the kubelet's
// limit, 10 MiB).
const maxManifest = 10 << 20

// Memory keeps small things over a restart; *checkpoint.Store is one.
type Memory interface {
	// Read returns an error that is fs.ErrNotExist for what is not there.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// DirectoryConfig holds what a directory source needs. Path and NodeName are
// required; the zero value of every other field means the default named beside
// it.
type DirectoryConfig struct {
	// Path is the directory, or a single file. It need not be there yet.
	Path     string
	NodeName string
	// Rescan is how often the directory is read although nothing was heard
	// of a change; 20s, the kubelet's fileCheckFrequency.
	Rescan time.Duration
	// Memory remembers the last good version of each file; nothing does,
	// and a file that is broken when the process starts wants no pods.
	Memory Memory

	Log *zap.Logger // silent
}

// directory is the source "file".
type directory struct {
	cfg   DirectoryConfig
	files map[string]*manifest // by path
	// holders says which file has a full name, as long as it does.
	holders  map[string]string
	unusable string // what the last scan logged
}

// manifest is one file as it was last read.
type manifest struct {
	sig        signature
	good       decoded // what is in effect
	remembered bool
	problems   []Problem
	retry      bool // it could not be read: look again whatever its signature
}

// signature tells two states of a file apart.
type signature struct {
	size     int64
	modified time.Time
	inode    uint64
}

// Directory returns the source named "file", which reads the manifests of a
// directory: all files whose names do not begin with a dot, in the order of
// their names, links followed, folders left out. Nothing is opened before it
// runs.
func Directory(cfg DirectoryConfig) (Source, error) {
	var errs []error
	if !filepath.IsAbs(cfg.Path) {
		errs = append(errs, fmt.Errorf("DirectoryConfig.Path is %q; an absolute path is required", cfg.Path))
	}
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("DirectoryConfig.NodeName is required"))
	}
	if cfg.Rescan < 0 {
		errs = append(errs, fmt.Errorf("DirectoryConfig.Rescan is %v; want a positive duration", cfg.Rescan))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podmgr: %w", err)
	}
	if cfg.Rescan == 0 {
		cfg.Rescan = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &directory{cfg: cfg, files: map[string]*manifest{}, holders: map[string]string{}}, nil
}

// Name is "file", the kubelet's word.
func (d *directory) Name() string { return "file" }

// Run reads the directory now, whenever something happens in it, and every
// Rescan.
func (d *directory) Run(ctx context.Context, deliver func(Snapshot)) error {
	w := newWatcher(d.cfg.Path, d.cfg.Log)
	defer w.close()
	first := true
	for {
		w.arm()
		changed, again := d.scan()
		if changed || first {
			deliver(d.snapshot())
			first = false
			d.remember()
		}
		if !w.wait(ctx, again) {
			return nil
		}
		if d.dropReplaced(w.removed) {
			deliver(d.snapshot())
		}
		w.removed = nil
	}
}

// dropReplaced forgets files that were removed and are there again: their pods
// are to end and to begin anew, even if the new file says the same. It tells
// whether there was one.
func (d *directory) dropReplaced(removed []string) (changed bool) {
	for _, p := range removed {
		if d.files[p] == nil {
			continue
		}
		if _, err := os.Stat(p); err != nil {
			continue // the next scan will see
		}
		delete(d.files, p)
		d.forget(p)
		changed = true
	}
	return changed
}

// scan reads what has changed. again says when it is time for the next scan:
// earlier than usual if a file is being written.
func (d *directory) scan() (changed bool, again time.Duration) {
	again = d.cfg.Rescan
	paths, err := d.list()
	if err != nil {
		if text := err.Error(); text != d.unusable {
			d.cfg.Log.Warn("manifests cannot be listed", zap.Error(err))
			d.unusable = text
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, again // what was there may still be
		}
	} else {
		d.unusable = ""
	}
	there := make(map[string]bool, len(paths))
	for _, p := range paths {
		there[p] = true
		c, soon := d.look(p)
		changed = changed || c
		if soon > 0 {
			again = min(again, soon)
		}
	}
	for p := range d.files {
		if !there[p] {
			delete(d.files, p)
			d.forget(p)
			changed = true
		}
	}
	return changed, again
}

// list names the manifests in the order in which they count.
func (d *directory) list() ([]string, error) {
	fi, err := os.Stat(d.cfg.Path)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return []string{d.cfg.Path}, nil
	}
	entries, err := os.ReadDir(d.cfg.Path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, filepath.Join(d.cfg.Path, e.Name()))
		}
	}
	return out, nil
}

// look reads a file if it changed. soon tells, unless it is zero, when to look
// at it again although nothing may be heard of it.
func (d *directory) look(path string) (changed bool, soon time.Duration) {
	old := d.files[path]
	fi, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		var sig signature
		if old != nil {
			sig = old.sig
		}
		return d.broken(path, sig, err.Error()), 0 // what was there may still be
	}
	if err != nil || !fi.Mode().IsRegular() {
		if old == nil {
			return false, 0
		}
		delete(d.files, path)
		d.forget(path)
		return true, 0
	}
	sig := signatureOf(fi)
	if old != nil && !old.retry && old.sig == sig {
		return false, 0
	}
	f, err := os.Open(path)
	if err != nil {
		return d.broken(path, sig, err.Error()), 0
	}
	defer func() { _ = f.Close() }()
	age := time.Since(fi.ModTime())
	writing := beingWritten(f, age)
	switch {
	case writing && age >= 0 && age < stuckWriter:
		return false, busyPoll
	case writing && d.hasEarlier(path):
		return d.broken(path, sig, "still open for writing"), stuckPoll
	case writing && old != nil && old.sig == sig:
		return false, stuckPoll
	}
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("the file is larger than %d bytes", maxManifest)
	}
	if err != nil {
		return d.broken(path, sig, err.Error()), 0
	}
	if len(bytes.TrimSpace(data)) == 0 && d.hasEarlier(path) {
		d.broken(path, sig, "empty; remove the file to remove what it had")
		d.files[path].retry = false
		return true, 0
	}
	now := decode(data, origin{nodeName: d.cfg.NodeName, file: path})
	d.files[path] = &manifest{sig: sig, good: now, problems: now.problems}
	if len(now.problems) > 0 {
		if old == nil {
			old = d.recall(path)
		}
		d.files[path].keep(old)
	}
	if writing { // only to begin with: see what becomes of it
		d.files[path].retry = true
		return true, stuckPoll
	}
	return true, 0
}

// hasEarlier tells whether something of the file is in effect, or was in an
// earlier life. What came of an unfinished file counts as well.
func (d *directory) hasEarlier(path string) bool {
	m := d.files[path]
	if m == nil {
		m = d.recall(path)
	}
	return m != nil && len(m.good.pods)+m.good.objects() > 0
}

// broken takes note of a file that cannot be read at all.
func (d *directory) broken(path string, sig signature, reason string) (changed bool) {
	old := d.files[path]
	if old != nil && old.retry && len(old.problems) > 0 && old.problems[0].Reason == reason {
		old.sig = sig
		return false
	}
	if old == nil {
		old = d.recall(path)
	}
	m := &manifest{sig: sig, retry: true, problems: []Problem{{File: path, Reason: reason}}}
	m.keep(old)
	d.files[path] = m
	return true
}

// keep lets what old had stay in effect where the new version is broken: an
// object that a broken document names, and, if there is a document of which
// not even the name could be read, every object that is not there any more.
func (m *manifest) keep(old *manifest) {
	if old == nil {
		return
	}
	nameless := false
	broken := map[string]bool{}
	for _, p := range m.problems {
		if p.Pod == "" {
			nameless = true
		}
		broken[p.Pod] = true
	}
	have := map[string]bool{}
	for _, p := range m.good.pods {
		have[podmeta.FullName(p.Namespace, p.Name)] = true
	}
	kept := false
	if m.good.numbers == nil { // nothing of the file could be read
		m.good.numbers = map[*v1.Pod]int{}
	}
	for _, p := range old.good.pods {
		if !have[podmeta.FullName(p.Namespace, p.Name)] && (nameless || broken[asWritten(p)]) {
			m.good.pods = append(m.good.pods, p)
			m.good.numbers[p] = old.good.numbers[p]
			kept = true
		}
	}
	wanted := func(name string) bool { return nameless || broken[name] }
	objects := m.good.objects()
	m.good.configMaps = keepObjects(m.good.configMaps, old.good.configMaps, wanted)
	m.good.secrets = keepObjects(m.good.secrets, old.good.secrets, wanted)
	m.good.claims = keepObjects(m.good.claims, old.good.claims, wanted)
	m.good.volumes = keepObjects(m.good.volumes, old.good.volumes, wanted)
	m.good.resources = keepObjects(m.good.resources, old.good.resources, wanted)
	kept = kept || m.good.objects() > objects
	for i := range m.problems {
		m.problems[i].Kept = kept
	}
}

// keepObjects adds to now what old has, now has not, and wanted names.
func keepObjects[T metav1.Object](now, old []T, wanted func(name string) bool) []T {
	have := map[string]bool{}
	for _, o := range now {
		have[objectName(o)] = true
	}
	for _, o := range old {
		if name := objectName(o); !have[name] && wanted(name) {
			now = append(now, o)
		}
	}
	return now
}

// objectName is namespace/name, or the name alone of what is in no namespace.
func objectName(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// asWritten is namespace/name as the manifest has it, without the node's name.
func asWritten(p *v1.Pod) string {
	return p.Namespace + "/" + strings.TrimSuffix(p.Name, "-"+strings.ToLower(p.Spec.NodeName))
}

// snapshot is what all files together want. Of several pods with one name the
// one that had it first stays; at the start that is the one of the oldest
// file.
func (d *directory) snapshot() Snapshot {
	var s Snapshot
	paths := make([]string, 0, len(d.files))
	for p := range d.files {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, func(a, b string) int {
		if c := d.files[a].sig.modified.Compare(d.files[b].sig.modified); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	claims := map[string]string{}
	for _, path := range paths {
		for _, p := range d.files[path].good.pods {
			name := podmeta.FullName(p.Namespace, p.Name)
			if claims[name] == "" || d.holders[name] == path {
				claims[name] = path
			}
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		m := d.files[path]
		s.Problems = append(s.Problems, m.problems...)
		s.ConfigMaps = append(s.ConfigMaps, m.good.configMaps...)
		s.Secrets = append(s.Secrets, m.good.secrets...)
		s.Claims = append(s.Claims, m.good.claims...)
		s.Volumes = append(s.Volumes, m.good.volumes...)
		s.ResourceClaims = append(s.ResourceClaims, m.good.resources...)
		within := map[string]bool{}
		for _, p := range m.good.pods {
			name := podmeta.FullName(p.Namespace, p.Name)
			switch {
			case claims[name] != path:
				s.Problems = append(s.Problems, Problem{
					File: path, Document: m.good.numbers[p], Pod: asWritten(p), Field: "metadata.name", Reason: "already used by a pod in " + claims[name],
				})
			case within[name]:
				s.Problems = append(s.Problems, Problem{
					File: path, Document: m.good.numbers[p], Pod: asWritten(p), Field: "metadata.name", Reason: "used twice in this file",
				})
			default:
				within[name] = true
				s.Pods = append(s.Pods, p.DeepCopy())
			}
		}
	}
	d.holders = claims
	for i := range s.Problems {
		s.Problems[i].Source = d.Name()
	}
	return s
}
