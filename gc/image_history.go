package gc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// The times at which images were first seen and last used, which are stored over restarts.
// Without them, images in daily use could be removed first after a restart.

// ImageMemory keeps the history of images for the next start of the process. *checkpoint.Store
// implements it.
type ImageMemory interface {
	// Read returns an error that is fs.ErrNotExist for a missing key.
	Read(key string) ([]byte, error)
	// Write replaces the value. An error is logged, and the next pass writes again.
	Write(key string, value []byte) error
}

// memoryKey and memoryVersion are the key of the record in ImageMemory and the version of its
// format. A history of another version is dropped.
const (
	memoryKey     = "images"
	memoryVersion = 1
)

// seen is the history of one image.
type seen struct {
	first, used time.Time // time of the first list with the image, and of its last use; used is zero if there was none
	inUse       bool      // in use in the last pass
}

// history is the history of images, by Image.key. ImageCollector.mu guards it. The zero value is
// empty.
type history struct {
	images map[string]seen
	dirty  bool // the history differs from the stored one
}

// observe updates the history from a list of images: it adds new images, drops missing ones, and
// sets the time of use. gone reports that an image of the history is missing in the list.
func (h *history) observe(images []Image, inUse func(*Image) bool, now time.Time) (gone bool) {
	// A new map drops missing images. An image that comes back later counts as new.
	next := make(map[string]seen, len(images))
	for i := range images {
		key := images[i].key()
		s, ok := h.images[key]
		if !ok {
			s.first = now
			h.dirty = true
		}
		used := inUse(&images[i])
		if used || s.inUse { // in use now, or until some time after the last pass
			s.used = now
		}
		// Only the beginning and the end of a use are stored, not each new time.
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

// touch records a use between two passes. An unknown image counts as first seen now. The next pass
// drops keys without an image.
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

// stored is the file format of the history. Times are Unix seconds. An image in use has no time
// of its last use, so that the file does not change while images stay in use.
type stored struct {
	Version int                    `json:"version"`
	Images  map[string]storedImage `json:"images"`
}

type storedImage struct {
	First int64 `json:"first"`
	Used  int64 `json:"used,omitempty"`
	InUse bool  `json:"inUse,omitempty"`
}

// encode returns the history for decodeHistory. Times are cut to seconds.
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

// decodeHistory decodes a history. Its times are converted to the monotonic clock; a time in the
// future counts as now. An image that was in use counts as used until now.
func decodeHistory(raw []byte, now time.Time) (history, error) {
	var in stored
	if err := json.Unmarshal(raw, &in); err != nil {
		return history{}, err
	}
	if in.Version != memoryVersion {
		return history{}, fmt.Errorf("version %d: want %d", in.Version, memoryVersion)
	}
	ago := func(unix int64) time.Time {
		// The difference is huge if the clock was never set.
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

// maxRemembered limits ages from a history: about ten years, more than any sensible MaxAge.
const maxRemembered = 10 * 365 * 24 * time.Hour

// recall reads the stored history. A missing value is an empty history without an error.
func recall(m ImageMemory, now time.Time) (history, error) {
	raw, err := m.Read(memoryKey)
	if errors.Is(err, fs.ErrNotExist) {
		return history{}, nil
	}
	if err != nil {
		return history{}, fmt.Errorf("read the times at which images were last used: %w", err)
	}
	h, err := decodeHistory(raw, now)
	if err != nil {
		return history{}, fmt.Errorf("read the times at which images were last used: %w", err)
	}
	return h, nil
}
