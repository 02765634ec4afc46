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
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/podmeta"
)

// stuckWriter is how long after its last change a file that somebody still has
// open for writing is no longer waited for: it is read if nothing of it is in
// effect yet, and a problem otherwise.
const stuckWriter = 2 * time.Second

// maxManifest is the largest manifest that is read, in bytes (the kubelet's
// limit, 10 MiB).
const maxManifest = 10 << 20

const (
	// maxFiles is how many entries of a directory are looked at; with more of
	// them nothing changes.
	maxFiles = 10_000
	// maxDirectory is what the objects of all files may come to in memory, in
	// bytes.
	maxDirectory = 2 * maxObjects
	// filePatience is how long one file, or the listing, is waited for. The file
	// system of an unreachable server never answers.
	filePatience = 10 * time.Second
	// knownPatience is the same for a file that has not answered before.
	knownPatience = 10 * time.Millisecond
	// scanPatience is how long one scan waits for files that do not answer; then
	// each of the others has hurriedPatience.
	scanPatience    = 30 * time.Second
	hurriedPatience = time.Second
)

// Memory keeps small things over a restart; *checkpoint.Store is one. The source's Run
// alone calls its methods: Write and Delete one at a time, and Read and Keys meanwhile, as a
// disk that hangs must not keep a manifest's removal from being seen. Values are whole
// manifests, with the Secrets in them.
type Memory interface {
	// Read returns an error that is fs.ErrNotExist for what is not there.
	Read(key string) ([]byte, error)
	// Write replaces the value of a key. An error is logged,
	// and Write is called again with the next change.
	Write(key string, value []byte) error
	// Delete may return an error that is fs.ErrNotExist for what is not there.
	Delete(key string) error
	// Keys may have keys of others in it, which are left alone.
	Keys() ([]string, error)
}

// DirectoryConfig holds what a directory source needs. Path and NodeName are
// required; the zero value of every other field means the default named beside
// it.
type DirectoryConfig struct {
	// Path is the directory, or a single file. It need not be there yet.
	Path string
	// NodeName is appended, in lower case, to the names of pods.
	NodeName string
	// Rescan is how often the directory is read although nothing was heard
	// of a change; 20s, the kubelet's fileCheckFrequency.
	Rescan time.Duration
	// Poll has the directory read every Rescan alone, and no notice of changes asked of
	// the kernel: for file systems that give none, such as those of a network. A file that
	// is removed and put back in between was never gone.
	Poll bool
	// Memory remembers the last good version of each file; nothing does,
	// and a file that is broken when the process starts wants no pods.
	Memory Memory
	// Found returns what runs under the name of a pod, so that a pod which a kubelet
	// made of the same file goes on. It may wait for the runtime, and is called only
	// before the first snapshot; nobody is asked. The pod is the callee's.
	Found func(ctx context.Context, pod *v1.Pod) ([]Found, error)

	Log *zap.Logger // silent
}

// directory is the source "file". Run's goroutine owns it. The functions that lists and
// reads call may go on after Run has, so they have none of its fields.
type directory struct {
	cfg   DirectoryConfig
	files map[string]*manifest // by path
	// holders says which file has a full name, as long as it does.
	holders  map[string]string
	unusable string // why the last scan could not list the files
	missing  bool   // that is since the directory is not there
	listed   bool   // the files were listed once
	size     int    // what the objects of all files come to, in bytes
	notes    *notes // for Memory

	// Calls into a file system that may never answer;
	// the goroutine of one that hangs stays.
	lists detached.Group[[]string]
	reads detached.Group[reading]
	late  time.Duration // how long this scan has waited in vain
}

// manifest is one file as it was last read.
type manifest struct {
	sig signature
	// good has objects of an older version, too, where the new one is broken: see keep.
	good     decoded // what is in effect
	data     []byte  // to remember, nil if it is remembered already
	whole    bool    // good is the file's latest content, and took belongs to it
	took     map[types.UID]types.UID
	problems []Problem
	retry    bool // it could not be read: look again whatever its signature
	silent   bool // it did not answer
}

// signature distinguishes two states of a file.
type signature struct {
	size     int64
	modified time.Time
	// Another inode with the same size and time is a file that was renamed into the place.
	inode uint64
}

// Directory returns the source named "file", which reads the manifests of a
// directory: all files whose names do not begin with a dot, in the order of
// their names, links followed, folders left out. What a link leads to has to be
// a regular file, and none that the kernel makes up. Nothing is opened before it
// runs. It returns an error for a cfg that could not work.
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

// Name is "file", the kubelet's word.
func (d *directory) Name() string { return "file" }

// Run reads the directory now, whenever something happens in it, and every
// Rescan. It fails if the directory cannot be listed to begin with: nothing is
// known then of what should run. deliver is called before anything is remembered, so pods
// do not wait for the disk.
func (d *directory) Run(ctx context.Context, deliver func(Snapshot)) error {
	w := newWatcher(d.cfg.Path, d.cfg.Poll, d.cfg.Log)
	defer w.close()
	defer d.notes.begin(ctx)()
	first := true
	for {
		w.arm(ctx)
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
		if !w.wait(ctx, again) {
			return nil
		}
		// The file's pods go with this snapshot and come with the next one. A
		// single snapshot would have no difference if the new file says the same.
		if d.dropReplaced(w.removed) {
			deliver(d.snapshot())
		}
		w.removed = nil
	}
}

// set takes note of a file, and drop that it is gone. What is remembered of it is
// left.
func (d *directory) set(path string, m *manifest) {
	d.drop(path)
	d.files[path] = m
	d.size += m.good.size
}

// drop takes a file and its size out of the source.
func (d *directory) drop(path string) {
	if m := d.files[path]; m != nil {
		d.size -= m.good.size
		delete(d.files, path)
	}
}

// dropReplaced forgets files that were removed, though they may be there again:
// their pods are to end and to begin anew, even if the new file says the same.
// It reports whether there was one.
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

// scan reads what has changed. again says when it is time for the next scan:
// earlier than usual if a file is being written. If ctx ends meanwhile the result is no
// state to deliver, and changed is false.
func (d *directory) scan(ctx context.Context) (changed bool, again time.Duration) {
	// A file that hangs costs time in this scan alone: late begins anew.
	again, d.late = d.cfg.Rescan, 0
	paths, err := d.list(ctx)
	if ctx.Err() != nil {
		return false, again
	}
	// A directory that is not there wants no pods, as in the kubelet.
	// One that cannot be read says nothing, and nothing changes.
	d.missing = errors.Is(err, fs.ErrNotExist)
	if err != nil {
		// Only news are logged: a directory may be unreadable for days.
		if text := err.Error(); text != d.unusable {
			d.cfg.Log.Warn("failed to list manifests", zap.String("path", d.cfg.Path), zap.Error(err))
			d.unusable, changed = text, !d.missing
		}
		if !d.missing {
			return changed, again // what was there may still be
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
	// Files that went, also those of whose removal no event came.
	for p := range d.files {
		if !there[p] {
			d.drop(p)
			d.forget(p)
			changed = true
		}
	}
	// Only once the files could be listed is it known which of those remembered are gone.
	if !d.listed && !d.missing {
		d.forgetOthers(paths)
	}
	d.listed = d.listed || !d.missing
	return changed, again
}

// list names the manifests in the order in which they count.
func (d *directory) list(ctx context.Context) ([]string, error) {
	// After this time the call may still be under way;
	// it is joined, not repeated, by the next scan.
	ctx, cancel := context.WithTimeoutCause(ctx, filePatience, fmt.Errorf("%s does not answer within %v", d.cfg.Path, filePatience))
	defer cancel()
	path := d.cfg.Path
	return d.lists.Do(ctx, path, func() ([]string, error) { return manifestsIn(path) })
}

// manifestsIn lists the files of a directory, or returns
// path if that is a file. It may wait for ever.
func manifestsIn(path string) ([]string, error) {
	// Nearly always path is a directory and no link, and one look is enough: a scan
	// comes every few seconds.
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
		if !strings.HasPrefix(name, ".") {
			// A link stays in it: paths are part of the pods' UIDs.
			out = append(out, filepath.Join(path, name))
		}
	}
	return out, nil
}

// linkedNames is safefile.Names of a link to a directory, which that does not follow.
func linkedNames(path string) ([]string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return safefile.Names(resolved, maxFiles)
}

// reading is what one look at a file brought.
type reading struct {
	sig     signature
	age     time.Duration // since its content was written last
	changed time.Time     // the last change of the file, its name or the link to it
	same    bool          // it is as it was; it has not been opened
	writing bool          // somebody has it open for writing
	folder  bool
	whole   bool // data is its content
	data    []byte
}

// read looks at a file, and reads it unless it is as it was or is being written.
// It may wait for ever, and has nothing of the source. A reading without data and without
// an error means: nothing to do now, or not yet.
func read(path string, was *signature) (r reading, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return r, err
	}
	// Most looks end after this call: nothing is opened while the state is the same.
	r.sig = signatureOf(fi)
	if r.folder = fi.IsDir(); r.folder {
		return r, nil
	}
	if r.same = was != nil && *was == r.sig; r.same {
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
	r.sig, r.age, r.changed = signatureOf(fi), time.Since(fi.ModTime()), changeOf(fi)
	// A link that leads elsewhere now is a change of
	// content, though the file that it leads to is old.
	if link, err := os.Lstat(path); err == nil && changeOf(link).After(r.changed) {
		r.changed = changeOf(link)
	}
	r.writing = beingWritten(f, r.age)
	// A time in the future says nothing about the writer, so such a file is read.
	if r.writing && r.age >= 0 && r.age < stuckWriter {
		return r, nil
	}
	r.data, err = safefile.Read(f, maxManifest)
	r.whole = err == nil
	return r, err
}

// patience is how long to wait for a file. One dead server may hold many files: with the
// full patience for each, a scan would take minutes and delay the pods of all others.
func (d *directory) patience(old *manifest) time.Duration {
	switch {
	case old != nil && old.silent:
		return knownPatience
	case d.late >= scanPatience:
		return hurriedPatience
	default:
		return filePatience
	}
}

// look reads a file if it changed. soon reports, unless it is zero, when to look
// at it again although nothing may be heard of it.
func (d *directory) look(ctx context.Context, path string) (changed bool, soon time.Duration) {
	old := d.files[path]
	var was *signature
	// After a failure the signature proves nothing:
	// nil has the file read whatever its state.
	if old != nil && !old.retry {
		was = &old.sig
	}
	limit := d.patience(old)
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
		var sig signature
		if old != nil {
			sig = old.sig
		}
		changed = d.broken(path, sig, "the file system does not answer")
		// From now on the file gets knownPatience, until it answers.
		d.files[path].silent = true
		return changed, 0
	// Gone since the listing, or a folder now, which is not read.
	case errors.Is(err, fs.ErrNotExist), err == nil && r.folder:
		if old == nil {
			return false, 0
		}
		d.drop(path)
		d.forget(path)
		return true, 0
	case err != nil:
		return d.broken(path, r.sig, err.Error()), 0 // what was there may still be
	case r.same && was == nil: // the answer to an earlier question
		return false, stuckPoll
	case r.same:
		return false, 0
	}
	return d.take(ctx, path, r)
}

// take has a file that was read take effect. It guards the pods in effect against a writer
// who is not done: half a file must end none of them.
func (d *directory) take(ctx context.Context, path string, r reading) (changed bool, soon time.Duration) {
	old := d.files[path]
	switch {
	// read found the writer at work. The end of writing makes no event.
	case !r.whole:
		return false, busyPoll
	// The writer stays: the earlier content is safer than half of the new one.
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
	// The new content replaces the file's own, which does not count against it.
	room := maxDirectory - d.size
	if old != nil {
		room += old.good.size
	}
	if now.size > room {
		changed = d.broken(path, r.sig, fmt.Sprintf("with this file all come to more than %d bytes in memory", maxDirectory))
		return changed, 0
	}
	// Before the pods are handed on: identify changes their UIDs.
	took := d.identify(ctx, path, r.changed, &now)
	m := &manifest{sig: r.sig, good: now, problems: now.problems, whole: true, took: took}
	// Only a version without problems is one to go back to.
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
	if r.writing { // only to begin with: see what becomes of it
		m.retry = true
		return true, stuckPoll
	}
	return true, 0
}

// hasEarlier reports whether something of the file is in effect, or was in an
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

// keep lets what old had stay in effect where the new version is broken: an
// object that a broken document names, and, if there is a document of which
// not even the name could be read, every object that is not there any more. old is not
// changed, but its objects are shared with m from here on.
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
	// Whoever reads a problem wants to know whether the pods still run.
	for i := range m.problems {
		m.problems[i].Kept = kept
	}
}

// keepObjects adds to now what old has, now has not, and wanted names. Those come last, in
// the order of old.
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
// file. Pods are copies, since the Manager annotates those that it is handed; the other
// objects are the source's own.
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
	// The file that has each name: the one that had
	// it in the last snapshot, or else the oldest.
	claims := map[string]string{}
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
				s.Pods = append(s.Pods, p.DeepCopy())
			}
		}
	}
	d.holders = claims
	// The files that were known stay in effect.
	if d.unusable != "" && !d.missing {
		s.Problems = append(s.Problems, Problem{File: d.cfg.Path, Reason: inOneLine(d.unusable), Kept: true})
	}
	for i := range s.Problems {
		s.Problems[i].Source = d.Name()
	}
	return s
}
