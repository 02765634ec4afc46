package images

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
)

// records has the files of Config.Records and an index of them. Only the first look-up reads the
// disk.
//
// A pull writes an intent to the disk before it calls the runtime, and removes the intent after
// its record is written. An intent that exists at the start belongs to a pull that a crash
// interrupted; settle finds out whether that pull left an image.
type records struct {
	dir string
	log *zap.Logger
	met *metrics

	// disk and mu are two locks, so that a look-up does not wait for disk writes once the index is
	// loaded.
	disk    sync.Mutex // held while files are changed; locked before mu
	trouble string     // error of the last reading; guarded by disk

	// mu guards the index below.
	mu      sync.Mutex
	loaded  bool
	pulled  map[string]*entry  // by file name
	intents map[string]*intent // by file name
}

// entry is one record. It is immutable, so readers need no lock.
type entry struct {
	record  *pulledRecord // nil if it cannot be read
	touched time.Time     // time of the last confirmation; at least LastUpdatedTime
	unsaved bool          // the record in memory is newer than the file
}

// intent stands for the unfinished pulls of one image. mu guards its fields.
type intent struct {
	image   string // "" if the file cannot be read
	running int    // number of pulls of this process
	before  string // reference of the image before the pull; "" if there was none or it is unknown
	unsure  bool   // a pull ended that may have left an image
}

// newRecords returns the records of a directory. It does not access the directory.
func newRecords(dir string, log *zap.Logger, met *metrics) *records {
	return &records{dir: dir, log: log, met: met, pulled: map[string]*entry{}, intents: map[string]*intent{}}
}

// path returns a subdirectory of Config.Records.
func (s *records) path(dir string) string { return filepath.Join(s.dir, dir) }

// load reads the files once. After an error, the next call tries again. Until it succeeds, no
// image counts as preloaded.
func (s *records) load() error {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if loaded {
		return nil
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.loadLocked()
}

// loadLocked reads all files into the index. disk must be held. An unreadable file is indexed
// too: without an entry its image would count as preloaded, and every pod could use it.
func (s *records) loadLocked() error {
	if s.loaded { // needs only disk: it changes with both locks held
		return nil
	}
	pulled, intents := map[string]*entry{}, map[string]*intent{}
	err := readRecords(s.path(recordDir), func(name string, b []byte, broken error) {
		e := &entry{}
		if broken == nil {
			if e.record, broken = decodeRecord(name, b); broken == nil {
				e.touched = e.record.LastUpdatedTime.Time
			}
		}
		if broken != nil {
			e.record = nil
			s.log.Warn("failed to read record of pulled image; pulling it again on use", zap.String("file", name), zap.Error(broken))
		}
		pulled[name] = e
	})
	if err == nil {
		err = readRecords(s.path(intentDir), func(name string, b []byte, broken error) {
			// It belongs to no pull of this process, so it has to be settled.
			i := &intent{unsure: true}
			var read *pullIntent
			if broken == nil {
				read, broken = decodeIntent(name, b)
			}
			if broken != nil {
				s.log.Warn("failed to read record of unfinished pull", zap.String("file", name), zap.Error(broken))
			} else {
				i.image = read.Image
			}
			intents[name] = i
		})
	}
	if err != nil {
		// Each pod tries again, so only a changed error is logged.
		if err.Error() != s.trouble {
			s.trouble = err.Error()
			s.log.Warn("failed to read records of pulled images; pulling images again on use", zap.Error(err))
		}
		return fmt.Errorf("records of pulled images: %w", err)
	}
	// The index is set only after all files were read.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded, s.pulled, s.intents = true, pulled, intents
	s.count()
	return nil
}

// count updates the gauges. mu must be held.
func (s *records) count() {
	s.met.records.Set(float64(len(s.pulled)))
	s.met.intents.Set(float64(len(s.intents)))
}

// look returns the record of the image with a reference. Only the first call reads the disk.
func (s *records) look(ref, image string) known {
	if s.load() != nil {
		return known{unreadable: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var k known
	if e := s.pulled[recordName(ref)]; e != nil {
		k.record, k.unreadable = e.record, e.record == nil
	}
	if i := s.intents[recordName(image)]; i != nil {
		// An image that was present before the pull is not a result of it.
		k.pulling = i.before != ref
		if i.image == "" {
			i.image = image // the name is known now, so that the intent can be settled
		}
	}
	return k
}

// begin writes the intent to pull an image. before is the reference of the image that is present
// under this name. If begin fails, the image must not be pulled: after a crash it would count as
// preloaded. Each successful begin needs one end.
func (s *records) begin(image, before string) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	if err := s.loadLocked(); err != nil {
		return err
	}
	name := recordName(image)
	s.mu.Lock()
	i := s.intents[name]
	s.mu.Unlock()
	// An unreadable intent is written again, since its image is known now.
	if i == nil || i.image == "" {
		file := pullIntent{Image: image}
		file.APIVersion, file.Kind = recordVersion, intentKind
		if err := writeRecord(s.path(intentDir), name, file); err != nil {
			return fmt.Errorf("intent to pull an image: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i == nil {
		i = &intent{before: before}
		s.intents[name] = i
	}
	i.image = image
	i.running++
	s.count()
	return nil
}

// end ends one begin. sure reports that the result of the pull is recorded. The last end of an
// image removes the intent. But if sure was false for one of the pulls, the intent is kept and
// end returns true: the caller has to call settle.
func (s *records) end(image string, sure bool) (open bool) {
	s.disk.Lock()
	defer s.disk.Unlock()
	name := recordName(image)
	s.mu.Lock()
	i := s.intents[name]
	i.running--
	i.unsure = i.unsure || !sure
	last, open := i.running == 0, i.unsure
	s.mu.Unlock()
	// The record has been written by now, so that a crash leaves the record, the intent, or both.
	if last && !open {
		s.drop(name)
	}
	return last && open
}

// drop removes an intent. disk must be held. If the file cannot be removed, the intent is settled
// again after a restart, which is harmless.
func (s *records) drop(name string) {
	if err := removeRecord(s.path(intentDir), name); err != nil {
		s.log.Warn("failed to remove record of unfinished pull", zap.String("file", name), zap.Error(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.intents, name)
	s.count()
}

// unsettled returns the images whose intents have to be settled. An intent with an unknown image
// waits until that image is requested.
func (s *records) unsettled() (images []string) {
	if s.load() != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.intents {
		if i.running == 0 && i.image != "" {
			images = append(images, i.image)
		}
	}
	return images
}

// settle ends the intent of an interrupted pull. ref is the reference of the image that is
// present now, or "" if none is. A new image without a record gets a record without credentials,
// so that each pod needs the registry's permission. If a new pull of the image has begun, that
// pull ends the intent instead.
func (s *records) settle(image, ref string) {
	name := recordName(image)
	s.mu.Lock()
	i := s.intents[name]
	done := i == nil || i.running > 0
	came := !done && ref != "" && ref != i.before
	s.mu.Unlock()
	if done {
		return
	}
	if came && s.note(ref, repository(image), pullCredentials{}) != nil {
		return // note has logged the error; the intent stays
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	// mu was not held during note, so check again.
	done = s.intents[name] != i || i.running > 0
	s.mu.Unlock()
	if !done {
		s.drop(name)
	}
}

// note records that a registry accepted creds for an image. A record that cannot be written is
// logged, kept in memory, and written by the next call. If load fails, nothing is recorded and
// the error is returned.
func (s *records) note(ref, repository string, creds pullCredentials) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	if err := s.loadLocked(); err != nil {
		return err
	}
	now, name := time.Now(), recordName(ref)
	s.mu.Lock()
	e := entry{}
	if old := s.pulled[name]; old != nil {
		e = *old
	}
	s.mu.Unlock()
	record, changed := e.record.updated(ref, repository, creds, now)
	var err error
	// Most calls change nothing and write nothing.
	if changed || e.unsaved {
		if err = writeRecord(s.path(recordDir), name, record); err != nil {
			err = fmt.Errorf("record of a pulled image: %w", err)
			s.log.Warn("failed to record pull of image; pods that use it may pull it again to verify their credentials", zap.String("image", ref), zap.Error(err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulled[name] = &entry{record: record, touched: now, unsaved: err != nil}
	s.count()
	return err
}

// prune removes the records of images that are not present, unless they were touched after
// since. It returns the joined errors of single files.
func (s *records) prune(present []string, since time.Time) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	if err := s.loadLocked(); err != nil {
		return err
	}
	keep := make(map[string]bool, len(present))
	for _, ref := range present {
		keep[recordName(ref)] = true
	}
	var gone []string
	s.mu.Lock()
	for name, e := range s.pulled {
		// A pull that ended after the list was requested is not in the list.
		if !keep[name] && e.touched.Before(since) {
			gone = append(gone, name)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, name := range gone {
		if err := removeRecord(s.path(recordDir), name); err != nil {
			errs = append(errs, err)
			continue
		}
		s.mu.Lock()
		delete(s.pulled, name)
		s.count()
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}
