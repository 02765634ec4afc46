package gc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// When images were seen first and used last, over restarts of the process. Without it every
// image would look unused after a restart, and the ones in daily use could go first.

// ImageMemory keeps a value over restarts; a *checkpoint.Store is one.
type ImageMemory interface {
	// Read returns an error that is fs.ErrNotExist for what is not there.
	Read(key string) ([]byte, error)
	// Write replaces the value. An error is logged, and the next pass writes again.
	Write(key string, value []byte) error
}

// The record's key, and the version of its format: a history of another version begins anew.
const (
	memoryKey     = "images"
	memoryVersion = 1
)

// seen is what is remembered of an image.
type seen struct {
	first, used time.Time // used is zero if it never was
	inUse       bool      // when last looked at
}

// history is what was seen of images, by Image.key. Manager.mu guards it. The zero value is
// empty.
type history struct {
	images map[string]seen
	dirty  bool // against what is stored
}

// observe brings the history up to date: images that are new begin, those that
// are gone end, of which it reports, and those of which inUse reports are in use now.
func (h *history) observe(images []Image, inUse func(*Image) bool, now time.Time) (gone bool) {
	// Built anew, so that images which somebody else removed need no search. An image that
	// comes back later is a new one.
	next := make(map[string]seen, len(images))
	for i := range images {
		key := images[i].key()
		s, ok := h.images[key]
		if !ok {
			s.first = now
			h.dirty = true
		}
		used := inUse(&images[i])
		if used || s.inUse { // in use now, or until some time since the last look
			s.used = now
		}
		// The time of use moves on with each look and is not worth a write; its beginning
		// and its end are.
		h.dirty = h.dirty || used != s.inUse
		s.inUse = used
		next[key] = s
	}
	for key := range h.images {
		if _, ok := next[key]; !ok {
			gone = true
		}
	}
	h.dirty = h.dirty || gone
	h.images = next
	return gone
}

// touch notes a use that came and went between two looks. An image that no pass has seen yet
// was first seen by this use: its age counts from here, and not from the next pass. A key that
// is none of the runtime's images goes with that pass.
func (h *history) touch(key string, now time.Time) {
	s, ok := h.images[key]
	if !ok {
		s.first = now
	}
	if h.images == nil {
		h.images = map[string]seen{}
	}
	s.used, h.dirty = now, true
	h.images[key] = s
}

// stored is the format of the history. Times are in Unix seconds; an image in
// use has no time of its last use, so that nothing is written while nothing
// changes.
type stored struct {
	Version int                    `json:"version"`
	Images  map[string]storedImage `json:"images"`
}

// storedImage is one image's part of stored.
type storedImage struct {
	First int64 `json:"first"`
	Used  int64 `json:"used,omitempty"`
	InUse bool  `json:"inUse,omitempty"`
}

// encode writes what decodeHistory reads. Times lose their fractions of a second.
func (h *history) encode() ([]byte, error) {
	out := stored{Version: memoryVersion, Images: make(map[string]storedImage, len(h.images))}
	for k, s := range h.images {
		i := storedImage{First: s.first.Unix(), InUse: s.inUse}
		if !s.inUse && !s.used.IsZero() {
			i.Used = s.used.Unix()
		}
		out.Images[k] = i
	}
	return json.Marshal(out)
}

// decodeHistory reads a history. Its times become ages once, against the wall
// clock; from then on they are measured. What lies in the future was just now.
// An image that was in use counts as used until now.
func decodeHistory(raw []byte, now time.Time) (history, error) {
	var in stored
	if err := json.Unmarshal(raw, &in); err != nil {
		return history{}, err
	}
	if in.Version != memoryVersion {
		return history{}, fmt.Errorf("version %d: want %d", in.Version, memoryVersion)
	}
	ago := func(unix int64) time.Time {
		// A difference that does not fit is that of a clock that was never set.
		return now.Add(-max(0, min(now.Sub(time.Unix(unix, 0)), maxRemembered)))
	}
	h := history{images: make(map[string]seen, len(in.Images))}
	for k, i := range in.Images {
		s := seen{first: ago(i.First), inUse: i.InUse}
		if i.Used != 0 {
			s.used = ago(i.Used)
		}
		if i.InUse {
			s.used = now
		}
		h.images[k] = s
	}
	return h, nil
}

// maxRemembered is the highest age that a history reports: about ten years, above any
// sensible MaxAge.
const maxRemembered = 10 * 365 * 24 * time.Hour

// recall reads what an earlier run stored. A value that is not there is an empty history and
// no error; with an error the history is empty too.
func recall(m ImageMemory, now time.Time) (history, error) {
	raw, err := m.Read(memoryKey)
	if errors.Is(err, fs.ErrNotExist) {
		return history{}, nil
	}
	if err != nil {
		return history{}, fmt.Errorf("recall images: %w", err)
	}
	h, err := decodeHistory(raw, now)
	if err != nil {
		return history{}, fmt.Errorf("recall images: %w", err)
	}
	return h, nil
}
