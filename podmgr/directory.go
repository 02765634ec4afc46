package podmgr

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/dirwatch"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/podmeta"
)

// stuckWriter is the longest wait for a writer, counted from the last change of the file. If the
// file is still open for writing afterwards, it is read, unless an earlier version is in effect;
// then it is reported as a problem.
const stuckWriter = 2 * time.Second

// maxManifest is the largest manifest that is read, in bytes (the kubelet's
// limit, 10 MiB).
const maxManifest = 10 << 20

const (
	// maxFiles limits the entries of the directory. With more entries the scan fails, and the
	// pods stay as they are.
	maxFiles = 10_000
	// maxDirectory limits the decoded objects of all files, in bytes of memory.
	maxDirectory = 2 * maxObjects
	// fileTimeout is the timeout for reading one file, or for listing the directory. The file
	// system of an unreachable server never answers.
	fileTimeout = 10 * time.Second
	// knownTimeout is the timeout for a file that did not answer before.
	knownTimeout = 10 * time.Millisecond
	// scanTimeout limits the time that one scan spends on files that do not answer. After that,
	// each other file has hurriedTimeout.
	scanTimeout    = 30 * time.Second
	hurriedTimeout = time.Second
)

// tooMuch is the problem of a file that exceeds maxDirectory.
var tooMuch = fmt.Sprintf("with this file, all manifests take more than %d bytes in memory", maxDirectory)

// Memory stores the last good versions of manifests over a restart; *checkpoint.Store implements
// it. Only the source's Run calls it. Write and Delete are called one at a time; Read and Keys
// may be called meanwhile, so that a hung disk does not hide the removal of a manifest. Values
// are whole manifests, including Secrets.
type Memory interface {
	// Read returns an error that is fs.ErrNotExist if there is no value of the key.
	Read(key string) ([]byte, error)
	// Write replaces the value of a key. An error is logged, and the value is written again at
	// the next change.
	Write(key string, value []byte) error
	// Delete removes the value of a key. For a missing key it may return an error that is
	// fs.ErrNotExist.
	Delete(key string) error
	// Keys returns all keys. Keys that the source did not write are ignored.
	Keys() ([]string, error)
}

// DirectoryConfig holds what a directory source needs. Path and NodeName are
// required; the zero value of every other field means the default named beside
// it.
type DirectoryConfig struct {
	// Path is the directory, or a single file. It may be missing at first.
	Path string
	// NodeName is appended, in lower case, to the names of pods.
	NodeName string
	// Rescan is the interval between scans without a notification of the kernel. The default is
	// 20 s, the kubelet's fileCheckFrequency.
	Rescan time.Duration
	// Poll turns off inotify: the directory is read every Rescan only. It is for file systems
	// without notifications, such as network file systems. A file that is removed and put back
	// between two scans counts as unchanged.
	Poll bool
	// Memory stores the last good version of each file. If Memory is nil, a file that is broken
	// when the process starts has no pods.
	Memory Memory
	// Found returns the running pods with the name of pod, so that a pod that a kubelet started
	// from the same file keeps running. It may block on the runtime. It is called only before the
	// first snapshot, with a copy of the pod. If Found is nil, no running pod is adopted.
	Found func(ctx context.Context, pod *v1.Pod) ([]Found, error)

	Log *zap.Logger // if nil, nothing is logged
}

// directory is the source "file". The goroutine of Run owns it. Calls in lists and reads may
// outlive Run, so they use none of its fields.
type directory struct {
	cfg   DirectoryConfig
	files map[string]*manifest // manifests by path
	// holders maps the full name of each pod to the file that it comes from.
	holders map[string]string
	// copies are the pods of the last snapshot. A pod that stays is delivered as the same copy, so
	// that the Manager does not compare it.
	copies   map[*v1.Pod]*v1.Pod
	unusable string // why the last scan could not list the files
	missing  bool   // the files could not be listed because the directory does not exist
	listed   bool   // the files were listed once
	size     int    // size of the objects of all files, in bytes of memory
	notes    *notes // pending writes to Memory

	// lists and reads make the calls into file systems. A call that never returns keeps its
	// goroutine.
	lists detached.Group[[]string]
	reads detached.Group[reading]
	late  time.Duration // how long this scan has waited for files that did not answer
}

// manifest is one file as it was last read.
type manifest struct {
	sig safefile.Signature
	// good also has objects of an older version in place of broken ones: see keep.
	good     decoded // the objects that are in effect
	data     []byte  // content to be stored in Memory; nil if it is stored
	whole    bool    // good has all of the file's latest content, and took is the result of identify for it
	took     map[types.UID]types.UID
	problems []Problem
	retry    bool // reading failed: the file is read again even if its signature is unchanged
	silent   bool // the file did not answer
}

// Directory returns the source named "file". It reads all files of a directory in the order of
// their names, except names that begin with a dot, backups of editors and package managers
// such as web.yaml~, web.yaml.bak and web.yaml.dpkg-old, and subdirectories. Links are
// followed, to regular files only, and not to files of the kernel such as those in /proc. It
// returns an error for an invalid cfg. Nothing is opened before Run.
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
	return &directory{cfg: cfg, files: map[string]*manifest{}, holders: map[string]string{}, notes: newNotes(cfg)}, nil
}

// Read reads the manifests once, as the source of [Directory] reads them at its start. It waits
// for files that are being written, for some seconds at most. It returns an error if the
// manifests cannot be read, or if ctx ends.
func Read(ctx context.Context, cfg DirectoryConfig) (Snapshot, error) {
	cfg.Memory, cfg.Found = nil, nil // they are for an agent that runs the pods
	s, err := Directory(cfg)
	if err != nil {
		return Snapshot{}, err
	}
	d, _ := s.(*directory)
	for begin := time.Now(); ; {
		_, again := d.scan(ctx)
		switch {
		case ctx.Err() != nil:
			return Snapshot{}, ctx.Err()
		case d.unusable != "":
			return Snapshot{}, errors.New(d.unusable)
		case again >= d.cfg.Rescan || time.Since(begin) > 2*stuckWriter:
			return d.snapshot(), nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// Name returns "file", the kubelet's name for the source.
func (d *directory) Name() string { return "file" }

// Run reads the directory at once, after each change in it, and every Rescan. It returns an
// error if the first listing fails. deliver is called before Memory is written, so pods do not
// wait for that disk.
func (d *directory) Run(ctx context.Context, deliver func(Snapshot)) error {
	var gone removals
	w := dirwatch.New(d.notWatched, gone.add)
	defer w.Close()
	defer d.notes.begin(ctx)()
	first := true
	for {
		watched := d.cfg.Poll || w.Watch(ctx, filepath.Clean(d.cfg.Path))
		changed, again := d.scan(ctx)
		switch {
		// A scan that was cut short lacks files, which would look like removals.
		case ctx.Err() != nil:
			return nil
		case first && d.unusable != "" && !d.missing:
			// An empty snapshot would end all pods that run.
			return errors.New(d.unusable)
		// The first one is delivered even if it is empty: Manager.Ready waits for it.
		case changed || first:
			deliver(d.snapshot())
			first = false
			d.remember()
		}
		if !watched {
			again = min(again, missingPoll)
		}
		if !await(ctx, w.Changed(), again) {
			return nil
		}
		// The file's pods go with this snapshot and come with the next one. A
		// single snapshot would have no difference if the new file says the same.
		if d.dropReplaced(gone.take()) {
			deliver(d.snapshot())
		}
	}
}

func (d *directory) notWatched(dir string, err error) {
	d.cfg.Log.Warn("failed to watch directory of manifests; reading it from time to time", zap.String("directory", dir), zap.Error(err))
}

// set stores the state of a file. It does not touch Memory.
func (d *directory) set(path string, m *manifest) {
	d.drop(path)
	d.files[path] = m
	d.size += m.good.size
}

// drop removes a file and its size from the source. It does not touch Memory.
func (d *directory) drop(path string) {
	if m := d.files[path]; m != nil {
		d.size -= m.good.size
		delete(d.files, path)
	}
}

// dropReplaced drops the manifests of files that were removed since the last scan. If a file
// exists again, its pod is replaced, even if the content is the same. It reports whether it
// dropped any.
func (d *directory) dropReplaced(removed []string) (changed bool) {
	for _, p := range removed {
		if d.files[p] == nil {
			continue
		}
		d.drop(p)
		d.forget(p)
		changed = true
	}
	return changed
}

// scan reads the changed files. The result again is the time until the next scan, which is shorter
// if a file is being written. If ctx ends during the scan, changed is false and the state is
// incomplete.
func (d *directory) scan(ctx context.Context) (changed bool, again time.Duration) {
	// A file that hangs costs time in this scan alone: late begins anew.
	again, d.late = d.cfg.Rescan, 0
	paths, err := d.list(ctx)
	if ctx.Err() != nil {
		return false, again
	}
	// A missing directory means no pods, as in the kubelet. If the directory cannot be
	// read, the pods stay as they are.
	d.missing = errors.Is(err, fs.ErrNotExist)
	if err != nil {
		// Logged only if it has changed: a directory may be unreadable for days.
		if text := err.Error(); text != d.unusable {
			d.cfg.Log.Warn("failed to list manifests", zap.String("path", d.cfg.Path), zap.Error(err))
			d.unusable, changed = text, !d.missing
		}
		if !d.missing {
			return changed, again // the known files may still exist
		}
	} else if d.unusable != "" {
		d.unusable, changed = "", true
		d.cfg.Log.Info("manifests can be listed again", zap.String("path", d.cfg.Path))
	}
	there := make(map[string]bool, len(paths))
	for _, p := range paths {
		there[p] = true
		c, soon := d.look(ctx, p)
		if ctx.Err() != nil {
			return false, again
		}
		changed = changed || c
		if soon > 0 {
			again = min(again, soon)
		}
	}
	// Removed files, also those without an event of their removal.
	for p := range d.files {
		if !there[p] {
			d.drop(p)
			d.forget(p)
			changed = true
		}
	}
	// After the first list it is known which files with a record are gone.
	if !d.listed && !d.missing {
		d.forgetOthers(paths)
	}
	d.listed = d.listed || !d.missing
	return changed, again
}

// list returns the paths of the manifests, in order.
func (d *directory) list(ctx context.Context) ([]string, error) {
	// After this time the call may still be under way;
	// it is joined, not repeated, by the next scan.
	ctx, cancel := context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("%s does not answer within %v", d.cfg.Path, fileTimeout))
	defer cancel()
	path := d.cfg.Path
	return d.lists.Do(ctx, path, func() ([]string, error) { return manifestsIn(path) })
}

// manifestsIn returns the files of a directory, or path if that is a file. It may block for
// ever.
func manifestsIn(path string) ([]string, error) {
	// In most cases path is a directory and not a link, and one call is enough.
	names, err := safefile.Names(path, maxFiles)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
			return []string{path}, err
		}
		names, err = linkedNames(path)
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	out := make([]string, 0, len(names))
	for _, name := range names {
		// Dots begin the names of editors' files, and of the
		// directories in volumes that are written atomically.
		if !strings.HasPrefix(name, ".") && !isBackup(name) {
			// Links are not resolved: paths are part of the pods' UIDs.
			out = append(out, filepath.Join(path, name))
		}
	}
	return out, nil
}

// isBackup reports whether a file is a copy that an editor or a package manager left beside the
// file in use.
func isBackup(name string) bool {
	for _, end := range []string{"~", ".bak", ".orig", ".rej", ".swp", ".swo", ".rpmsave", ".rpmnew", ".rpmorig"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") || strings.Contains(name, ".dpkg-")
}

// linkedNames is safefile.Names for a link to a directory; safefile.Names does not follow links.
func linkedNames(path string) ([]string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return safefile.Names(resolved, maxFiles)
}

// reading is the result of one call of read.
type reading struct {
	sig     safefile.Signature
	age     time.Duration // time since the last write of the content
	changed time.Time     // the last change of the file, its name or the link to it
	same    bool          // the signature is unchanged; the file was not opened
	writing bool          // a process has the file open for writing
	folder  bool
	whole   bool // data is the whole content of the file
	data    []byte
}

// read reads a file, unless its signature equals *before or a process is writing to it. It may
// block for ever and uses no fields of the source. A reading without data and without an error
// means that there is nothing to read now.
func read(path string, before *safefile.Signature) (r reading, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return r, err
	}
	// Most calls end here: an unchanged file is not opened.
	r.sig = safefile.SignatureOf(fi)
	if r.folder = fi.IsDir(); r.folder {
		return r, nil
	}
	if r.same = before != nil && *before == r.sig; r.same {
		return r, nil
	}
	f, err := safefile.OpenLinked(path)
	if err != nil {
		return r, err
	}
	defer func() { _ = f.Close() }()
	// Another file may have come to the path since:
	// state and content are both taken from f.
	if fi, err = f.Stat(); err != nil {
		return r, err
	}
	r.sig, r.age, r.changed = safefile.SignatureOf(fi), time.Since(fi.ModTime()), changeOf(fi)
	// A link that leads elsewhere now is a change of
	// content, though the file that it leads to is old.
	if link, err := os.Lstat(path); err == nil && changeOf(link).After(r.changed) {
		r.changed = changeOf(link)
	}
	r.writing = safefile.BeingWritten(f, r.age)
	// A time in the future says nothing about the writer, so such a file is read.
	if r.writing && r.age >= 0 && r.age < stuckWriter {
		return r, nil
	}
	r.data, err = safefile.Read(f, maxManifest)
	r.whole = err == nil
	return r, err
}

// timeout returns the timeout for a file. It becomes shorter during a scan, since one server
// that does not answer may have many of the files and would delay the pods of all others.
func (d *directory) timeout(old *manifest) time.Duration {
	switch {
	case old != nil && old.silent:
		return knownTimeout
	case d.late >= scanTimeout:
		return hurriedTimeout
	default:
		return fileTimeout
	}
}

// look reads a file if it changed. If soon is above 0, the file has to be read again after this
// time, even without a notification.
func (d *directory) look(ctx context.Context, path string) (changed bool, soon time.Duration) {
	old := d.files[path]
	var was *safefile.Signature
	// After a failure the file is read even if its signature is unchanged: was is
	// nil.
	if old != nil && !old.retry {
		was = &old.sig
	}
	limit := d.timeout(old)
	timeout, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := d.reads.Do(timeout, path, func() (reading, error) { return read(path, was) })
	// With ErrBusy, earlier calls hang in the same way.
	silent := err != nil && (timeout.Err() != nil || errors.Is(err, detached.ErrBusy))
	switch {
	case ctx.Err() != nil:
		return false, 0
	case silent:
		d.late += limit
		// The old time of change is kept: snapshot orders files by it.
		var sig safefile.Signature
		if old != nil {
			sig = old.sig
		}
		changed = d.broken(path, sig, "the file system does not answer")
		// From now on the file gets knownTimeout, until it answers.
		d.files[path].silent = true
		return changed, 0
	// The file was removed since the list, or is a directory now.
	case errors.Is(err, fs.ErrNotExist), err == nil && r.folder:
		if old == nil {
			return false, 0
		}
		d.drop(path)
		d.forget(path)
		return true, 0
	case err != nil:
		return d.broken(path, r.sig, err.Error()), 0 // the file may still exist
	case r.same && was == nil: // the result of an earlier call, which had a signature
		return false, stuckPoll
	case r.same:
		return false, 0
	}
	return d.take(ctx, path, r)
}

// take puts the content of a file into effect, unless it may be unfinished: a half-written file
// must not end pods that run.
func (d *directory) take(ctx context.Context, path string, r reading) (changed bool, soon time.Duration) {
	old := d.files[path]
	switch {
	// The file is being written. The end of writing causes no event.
	case !r.whole:
		return false, busyPoll
	// The file is still open for writing: the earlier content stays in effect.
	case r.writing && d.hasEarlier(path):
		return d.broken(path, r.sig, "still open for writing"), stuckPoll
	// Read once while it was open, and not written to since.
	case r.writing && old != nil && old.sig == r.sig:
		return false, stuckPoll
	}
	// An empty file is left by a full disk, or by a writer that truncates first.
	if len(bytes.TrimSpace(r.data)) == 0 && d.hasEarlier(path) {
		d.broken(path, r.sig, "empty; remove the file to remove what it had")
		// broken would have it read with each scan; an
		// empty file is read again when it changes.
		d.files[path].retry = false
		return true, 0
	}
	now := decode(r.data, origin{nodeName: d.cfg.NodeName, file: path})
	// The size of the content that is replaced does not count.
	room := maxDirectory - d.size
	if old != nil {
		room += old.good.size
	}
	if now.size > room {
		return d.broken(path, r.sig, tooMuch), 0
	}
	// Before the pods are delivered: identify changes their UIDs.
	took := d.identify(ctx, path, r.changed, &now)
	m := &manifest{sig: r.sig, good: now, problems: now.problems, whole: true, took: took}
	// Only a version without problems is stored in Memory.
	if d.cfg.Memory != nil && len(now.problems) == 0 && !r.writing {
		m.data = r.data
	}
	if len(now.problems) > 0 {
		// The first look after a start: the version before is on the disk.
		if old == nil {
			old = d.recall(path)
		}
		m.keep(old)
	}
	d.set(path, m)
	if r.writing { // the content may be incomplete: read it again soon
		m.retry = true
		return true, stuckPoll
	}
	return true, 0
}

// hasEarlier reports whether an earlier version of the file is in effect or in Memory. A version
// read from an unfinished file counts.
func (d *directory) hasEarlier(path string) bool {
	m := d.files[path]
	if m == nil {
		m = d.recall(path)
	}
	return m != nil && len(m.good.pods)+m.good.objects() > 0
}

// broken records that a file cannot be read.
func (d *directory) broken(path string, sig safefile.Signature, reason string) (changed bool) {
	old := d.files[path]
	reason = inOneLine(reason)
	// With the same reason nothing has changed, or
	// a snapshot would be sent with each scan.
	if old != nil && old.retry && len(old.problems) > 0 && old.problems[0].Reason == reason {
		old.sig = sig
		return false
	}
	if old == nil {
		old = d.recall(path)
	}
	m := &manifest{sig: sig, retry: true, problems: []Problem{{File: path, Reason: reason}}}
	m.keep(old)
	d.set(path, m)
	return true
}

// keep keeps objects of the old version in effect where the new version is broken. These are the
// objects that a broken document names. If the name in a document cannot be read, they are all
// objects that are missing now. old is not changed, but shares its objects with m.
func (m *manifest) keep(old *manifest) {
	if old == nil {
		return
	}
	broken := m.good.broken
	nameless := broken == nil || broken[""]
	have := map[string]bool{}
	for _, p := range m.good.pods {
		have[podmeta.FullName(p.Namespace, p.Name)] = true
	}
	kept := false
	if m.good.numbers == nil { // nothing of the file could be read
		m.good.numbers = map[*v1.Pod]int{}
	}
	// A pod of the new version wins over the old one of that name.
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
	// Problems say whether the former version is in effect.
	for i := range m.problems {
		m.problems[i].Kept = kept
	}
}

// keepObjects returns the list now, followed by the objects of the list old that are missing in
// now and for whose names wanted returns true.
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

// objectName returns namespace/name, or only the name of an object without a namespace.
func objectName(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// asWritten returns namespace/name as in the manifest, without the suffix of the node.
func asWritten(p *v1.Pod) string {
	return p.Namespace + "/" + strings.TrimSuffix(p.Name, "-"+strings.ToLower(p.Spec.NodeName))
}

// snapshot returns the objects of all files. If several pods have the same name, it returns the pod
// of the first file, or at the start the pod of the oldest file. Pods are copies, since the Manager
// annotates them; other objects are shared.
func (d *directory) snapshot() Snapshot {
	s := Snapshot{Files: make(map[types.UID]string, len(d.holders))}
	paths := make([]string, 0, len(d.files))
	for p := range d.files {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(d.files[a].sig.Modified(), d.files[b].sig.Modified()), cmp.Compare(a, b))
	})
	// The file that has each name: the one that had
	// it in the last snapshot, or else the oldest.
	claims := make(map[string]string, len(d.holders))
	copies := make(map[*v1.Pod]*v1.Pod, len(d.copies))
	for _, path := range paths {
		for _, p := range d.files[path].good.pods {
			name := podmeta.FullName(p.Namespace, p.Name)
			if claims[name] == "" || d.holders[name] == path {
				claims[name] = path
			}
		}
	}
	// Pods are delivered in the order of paths, as the kubelet reads files.
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
				c := d.copies[p]
				if c == nil || c.UID != p.UID {
					c = p.DeepCopy()
				}
				copies[p] = c
				s.Pods = append(s.Pods, c)
				s.Files[p.UID] = path
			}
		}
	}
	d.holders, d.copies = claims, copies
	// The files that were known stay in effect.
	if d.unusable != "" && !d.missing {
		s.Problems = append(s.Problems, Problem{File: d.cfg.Path, Reason: inOneLine(d.unusable), Kept: true})
	}
	for i := range s.Problems {
		s.Problems[i].Source = d.Name()
	}
	return s
}
