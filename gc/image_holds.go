package gc

import (
	"context"
	"sync"
	"time"

	"github.com/nodewright/nodewright/gc/internal/hold"
)

// Holds of images by starting pods, over package hold. They protect an image between its pull
// and its first container. A pod holds the name that it requests and the ID that it gets; a pass
// takes an image with all its names (fullName).

// ImageHold protects any number of images for a starting pod. Its methods may be called from any
// goroutine.
type ImageHold struct {
	m *ImageCollector

	mu   sync.Mutex
	over bool
	held []*hold.Hold[string] // one for each ImageLookup
	// got has the IDs of the held images. Release records that they were used.
	got []string
}

// Hold returns a hold without images. It must be released, or its images are never collected.
func (m *ImageCollector) Hold() *ImageHold { return &ImageHold{m: m} }

// ImageLookup is one image of an ImageHold while it is looked up or pulled. It ends with its
// ImageHold.
type ImageLookup struct {
	of *ImageHold
	h  *hold.Hold[string]
}

// Name holds the image with that name, present or not. Call it before the image is looked up or
// pulled. If the image is being removed, Name waits for the end of the removal. Name returns an
// error only if ctx ends.
func (h *ImageHold) Name(ctx context.Context, name string) (*ImageLookup, error) {
	// Each look-up has its own hold, so that each learns of removals.
	l := &ImageLookup{of: h, h: h.m.holds.Open()}
	h.mu.Lock()
	over := h.over
	if !over {
		h.held = append(h.held, l.h)
	}
	h.mu.Unlock()
	// The ImageHold was released before, so nothing else would release this one.
	if over {
		l.h.Release()
	}
	_, err := l.h.Add(ctx, fullName(name))
	return l, err
}

// Got holds the image by its ID after it was looked up or pulled. intact is false if the image
// was removed meanwhile under another name: look it up or pull it again, and call Got again. Got
// returns an error only if ctx ends.
func (l *ImageLookup) Got(ctx context.Context, id string) (intact bool, err error) {
	intact, err = l.h.Add(ctx, fullName(id))
	if err == nil {
		l.of.mu.Lock()
		l.of.got = append(l.of.got, id)
		l.of.mu.Unlock()
	}
	return intact, err
}

// Release releases the images. Before it, their users must be visible in ImageStore.Uses.
// Further calls do nothing, and later calls of Name hold nothing.
func (h *ImageHold) Release() {
	h.mu.Lock()
	held, got := h.held, h.got
	h.over, h.held, h.got = true, nil, nil
	h.mu.Unlock()
	// First record the use, then release: a pass after the release must see the use.
	if len(got) > 0 {
		now := time.Now()
		h.m.mu.Lock()
		for _, id := range got {
			h.m.history.touch(id, now)
		}
		h.m.mu.Unlock()
	}
	for _, one := range held {
		one.Release()
	}
}
