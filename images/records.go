package images

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
)

// records are the files of Config.Records, and an index of them, so that no
// look-up reads the disk after the first.
//
// A pull leaves a trail that a crash cannot break: the intent is on the disk
// before the runtime is asked, and goes when the record of what came of it is
// there. What is found at a start is an intent that nobody has ended, and is
// settled like a pull whose end is not known.
type records struct {
	dir string
	log *zap.Logger
	met *metrics

	// With two locks, a look-up never waits for the disk, once the files have been
	// read.
	disk    sync.Mutex // held by who changes files; taken before mu
	trouble string     // why they could not be read the last time; guarded by disk

	// mu guards the index below.
	mu      sync.Mutex
	loaded  bool
	pulled  map[string]*entry  // by file name, as the files are
	intents map[string]*intent // likewise
}

// entry is one record. It is replaced and never changed, so that whoever has it
// needs no lock.
type entry struct {
	record  *pulledRecord // nil if it cannot be read
	touched time.Time     // when it was last confirmed; at least LastUpdatedTime
	unsaved bool          // the file is older than the record
}

// intent is one pull that was begun, or several of one image. Its fields are
// guarded by mu.
type intent struct {
	image   string // "" if the file cannot be read
	running int    // how many go on in this process
	before  string // reference of the image that was here before; "" if none was, or that is not known
	unsure  bool   // one of them ended in a way that may have left an image
}

// newRecords returns the records of a directory, which it does not touch yet.
func newRecords(dir string, log *zap.Logger, met *metrics) *records {
	return &records{dir: dir, log: log, met: met, pulled: map[string]*entry{}, intents: map[string]*intent{}}
}

// path is one of the two directories below Config.Records.
func (s *records) path(dir string) string { return filepath.Join(s.dir, dir) }

// load reads the files, once. While it fails, nothing is known and any image
// may be one that was pulled; the next call tries again.
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

// loadLocked reads all files into the index. It needs disk. A file that cannot
// be read stays in the index as unreadable: to leave it out would make its
// image one that was never pulled, which every pod may use.
func (s *records) loadLocked() error {
	if s.loaded { // changes with disk and mu only
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
			s.log.Warn("record of a pulled image cannot be read; it is to be pulled again", zap.String("file", name), zap.Error(broken))
		}
		pulled[name] = e
	})
	if err == nil {
		err = readRecords(s.path(intentDir), func(name string, b []byte, broken error) {
			// Nobody in this process began it, so that nobody will end it.
			i := &intent{unsure: true}
			var read *pullIntent
			if broken == nil {
				read, broken = decodeIntent(name, b)
			}
			if broken != nil {
				s.log.Warn("intent to pull an image cannot be read", zap.String("file", name), zap.Error(broken))
			} else {
				i.image = read.Image
			}
			intents[name] = i
		})
	}
	if err != nil {
		// Each pod asks again, and the log is to have it once.
		if err.Error() != s.trouble {
			s.trouble = err.Error()
			s.log.Warn("records of pulled images cannot be read; all are to be pulled again", zap.Error(err))
		}
		return fmt.Errorf("records of pulled images: %w", err)
	}
	// Only a complete reading counts.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded, s.pulled, s.intents = true, pulled, intents
	s.count()
	return nil
}

// count updates the gauges. It needs mu.
func (s *records) count() {
	s.met.records.Set(float64(len(s.pulled)))
	s.met.intents.Set(float64(len(s.intents)))
}

// look returns what is known of an image that is here by that reference. It is
// called at every use of an image, and reads no disk but the first time.
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
		// What was here before the pull came by another way.
		k.pulling = i.before != ref
		if i.image == "" {
			i.image = image // now it can be settled
		}
	}
	return k
}

// begin notes that a pull is about to start. Before is the reference of the
// image that is here by this name. A pull that cannot be noted must not be:
// after a crash nobody would know that its image is not for everybody. Every
// begin that returns nil needs one end.
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
	// An intent whose file cannot be read is written anew, now that its image is
	// known.
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

// end takes back one begin. Sure says that whatever the pull brought is on
// record. The intent goes with the last one; if one of them was not sure, it
// is true that the intent stays and is to be settled.
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
	// The record has been written by now: between both a crash finds at least one
	// of them.
	if last && !open {
		s.drop(name)
	}
	return last && open
}

// drop ends an intent. It needs disk. If its file cannot be removed, it is
// settled once more after a restart, which does no harm.
func (s *records) drop(name string) {
	if err := removeRecord(s.path(intentDir), name); err != nil {
		s.log.Warn("intent to pull an image stays", zap.String("file", name), zap.Error(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.intents, name)
	s.count()
}

// unsettled are the images of intents whose end is not known. Intents whose
// image is not known wait for somebody who asks for it.
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

// settle ends an intent whose end was not known, by what is here now: ref, ""
// for nothing. An image that has come since, and is on no record, gets one
// without credentials: nobody may use it before the registry has let them. A
// pull that begins meanwhile takes the intent over, and ends it.
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
		return // it was logged, and the intent does for now
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	// mu was given up for the record: the look is taken again.
	done = s.intents[name] != i || i.running > 0
	s.mu.Unlock()
	if !done {
		s.drop(name)
	}
}

// note keeps that an image was had of a repository with these credentials.
// Errors are logged; what could not be written is known until this process
// ends, and written with what comes next. An error of loading means that
// nothing was noted at all.
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
	// Most calls change nothing, and cost no write.
	if changed || e.unsaved {
		if err = writeRecord(s.path(recordDir), name, record); err != nil {
			err = fmt.Errorf("record of a pulled image: %w", err)
			s.log.Warn("a pull is not on record", zap.String("image", ref), zap.Error(err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulled[name] = &entry{record: record, touched: now, unsaved: err != nil}
	s.count()
	return err
}

// prune drops the records of images that are not present, unless they were
// touched since. It returns the errors of single files and goes on with the
// others.
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
		// A pull that ended after the list was begun is not in the list.
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
