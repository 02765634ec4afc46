package podmgr

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/podmeta"
)

// remembered is the last good version of a file.
type remembered struct {
	// Path is compared on reading, since the key is only a hash of it.
	Path string
	// Data is the manifest as written: another version
	// of this library may have other defaults.
	Data []byte
	// Took has the adopted UIDs of pods, by the UIDs of the manifest; see identify.
	Took map[types.UID]types.UID `json:",omitempty"`
}

// memoryPrefix begins the keys of remembered files.
const memoryPrefix = "manifest-"

// memoryKey hashes the path, which has slashes and may be longer than a record's name.
func memoryKey(path string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(path))
	return memoryPrefix + hex.EncodeToString(h.Sum(nil))
}

// parseRemembered decodes a record. It returns false for a record of another path.
func parseRemembered(b []byte, path string) (r remembered, ok bool) {
	if json.Unmarshal(b, &r) != nil || r.Path != path || len(r.Data) > maxManifest {
		return remembered{}, false
	}
	return r, true
}

// recall reads the last good version of a file from before the restart, or returns nil if there
// is none. Its objects are in effect while the new version is broken.
func (d *directory) recall(path string) *manifest {
	r, ok := d.remembered(path)
	if !ok {
		return nil
	}
	m := &manifest{good: decode(r.Data, origin{nodeName: d.cfg.NodeName, file: path})}
	// The pods ran with these UIDs. A UID from a damaged record may be unsafe in a path.
	for _, p := range m.good.pods {
		if uid := r.Took[p.UID]; podmeta.IsHashUID(uid) {
			rename(p, uid)
		}
	}
	return m
}

// remembered reads the record of a file. If that fails, it logs the error and returns false.
func (d *directory) remembered(path string) (r remembered, ok bool) {
	if d.cfg.Memory == nil {
		return r, false
	}
	b, err := d.notes.read(memoryKey(path))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.cfg.Log.Warn("failed to read record of manifest", zap.String("file", path), zap.Error(err))
		}
		return r, false
	}
	return parseRemembered(b, path)
}

// remember stores new good versions of files. It runs after the pods were delivered, so they do
// not wait for the disk.
func (d *directory) remember() {
	for path, m := range d.files {
		if m.data == nil {
			continue
		}
		b, err := json.Marshal(remembered{Path: path, Data: m.data, Took: m.took})
		if err != nil {
			continue
		}
		d.notes.put(note{key: memoryKey(path), path: path, value: b})
		m.data = nil
	}
}

// forgetOthers deletes the records, and the Secrets in them, of files that were removed while
// the agent was down.
func (d *directory) forgetOthers(paths []string) {
	if d.cfg.Memory == nil {
		return
	}
	keys, err := d.cfg.Memory.Keys()
	if err != nil {
		d.cfg.Log.Warn("failed to list records of manifests", zap.Error(err))
		return
	}
	there := make(map[string]bool, len(paths))
	for _, p := range paths {
		there[memoryKey(p)] = true
	}
	for _, key := range keys {
		if strings.HasPrefix(key, memoryPrefix) && !there[key] {
			d.forgetKey(key, "")
		}
	}
}

// forget deletes the record of a file.
func (d *directory) forget(path string) {
	if d.cfg.Memory != nil {
		d.forgetKey(memoryKey(path), path)
	}
}

// forgetKey deletes a record. path is for the log; it is "" if it is not known.
func (d *directory) forgetKey(key, path string) {
	d.notes.put(note{key: key, path: path})
}

// note is a pending write or deletion of a value in a Memory.
type note struct {
	key, path string
	value     []byte // nil means that the key is deleted
}

// notes queues writes to a Memory. Its own goroutine makes them, so that a hung disk does not
// delay the detection of removed files. mu guards the fields below it.
type notes struct {
	memory Memory
	log    *zap.Logger

	mu      sync.Mutex
	pending map[string]note // notes to write, by key; a later note replaces an earlier one
	running bool
	signal  wake.Signal // something is pending
}

// newNotes returns an empty queue. If the source has no Memory, put and read must not be called.
func newNotes(cfg DirectoryConfig) *notes {
	return &notes{memory: cfg.Memory, log: cfg.Log, pending: map[string]note{}, signal: wake.New()}
}

// begin starts the goroutine. end waits until everything pending is written, and stops the
// goroutine; put must not be called afterwards.
func (n *notes) begin(ctx context.Context) (end func()) {
	n.mu.Lock()
	n.running = true
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.run(ctx)
	}()
	return func() {
		cancel()
		<-done
		n.mu.Lock()
		n.running = false
		n.mu.Unlock()
	}
}

// put queues a note, or writes it at once if the goroutine does not run. A failed write is tried
// again with the next note.
func (n *notes) put(x note) {
	n.mu.Lock()
	n.pending[x.key] = x
	running := n.running
	n.mu.Unlock()
	// Outside of Run, as in a single scan, there is no goroutine to wait for.
	if !running {
		n.write()
		return
	}
	// One signal is enough: whoever takes it writes all that is pending.
	n.signal.Set()
}

// read returns the value of a key, pending writes included.
func (n *notes) read(key string) ([]byte, error) {
	// A pending deletion counts: the file was removed, although its record is still on disk.
	n.mu.Lock()
	x, is := n.pending[key]
	n.mu.Unlock()
	switch {
	case !is:
		return n.memory.Read(key)
	case x.value == nil:
		return nil, fs.ErrNotExist
	default:
		return x.value, nil
	}
}

// run writes pending notes until ctx ends, then the rest.
func (n *notes) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			n.write()
			return
		case <-n.signal:
			n.write()
		}
	}
}

// write writes all pending notes once. Calls must not overlap.
func (n *notes) write() {
	n.mu.Lock()
	todo := maps.Clone(n.pending)
	n.mu.Unlock()
	// Without the lock, since the disk may hang. In order, so that tests can be repeated.
	for _, key := range slices.Sorted(maps.Keys(todo)) {
		x := todo[key]
		if !n.writeOne(x) {
			continue
		}
		// A newer note of the same key may have come meanwhile, and is still to be written.
		n.mu.Lock()
		if now := n.pending[key]; bytes.Equal(now.value, x.value) && (now.value == nil) == (x.value == nil) {
			delete(n.pending, key)
		}
		n.mu.Unlock()
	}
}

// writeOne writes one note, and reports whether it is finished. Errors are logged.
func (n *notes) writeOne(x note) (done bool) {
	if x.value == nil {
		if err := n.memory.Delete(x.key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Warn("failed to delete record of manifest", zap.String("key", x.key), zap.String("file", x.path), zap.Error(err))
		}
		return true // the next start deletes records without a file
	}
	// After a restart most records say the same already: reading spares the disk a write.
	if have, err := n.memory.Read(x.key); err == nil && bytes.Equal(have, x.value) {
		return true
	}
	if err := n.memory.Write(x.key, x.value); err != nil {
		n.log.Warn("failed to write record of manifest", zap.String("file", x.path), zap.Error(err))
		return false
	}
	return true
}
