package gc

import (
	"context"
	"sync"
	"time"

	"github.com/nodewright/nodewright/gc/internal/hold"
)

// Holds of images by pods that are being started, over package hold: they close the gap
// between a pull and the first container of the image. A pod holds the name that it asks for
// and the ID that it finds; a pass takes an image with all its names, in the form of
// fullName.

// ImageHold is what a pod that is being started holds, of any number of images. Its
// methods may be called from any goroutine.
type ImageHold struct {
	m *ImageCollector

	mu   sync.Mutex
	over bool
	held []*hold.Hold[string] // one for each Lookup
	// got are the IDs that were found, whose use Release notes.
	got []string
}

// Hold begins a hold, of nothing yet. It must be released, or its images are never
// collected.
func (m *ImageCollector) Hold() *ImageHold { return &ImageHold{m: m} }

// ImageLookup is one image of a Hold that is being looked up or pulled. It ends with its Hold.
type ImageLookup struct {
	of *ImageHold
	h  *hold.Hold[string]
}

// Name holds the image of that name, as the pod names it, whether it is here
// yet or not. It must come before it is looked up or pulled. If the image is
// being removed Name waits until it is gone. The error is ctx's.
func (h *ImageHold) Name(ctx context.Context, name string) (*ImageLookup, error) {
	// Each look-up has a hold of its own: what one is told to look up anew is
	// no news to the others.
	l := &ImageLookup{of: h, h: h.m.holds.Open()}
	h.mu.Lock()
	over := h.over
	if !over {
		h.held = append(h.held, l.h)
	}
	h.mu.Unlock()
	// The Hold was released before: nobody would let go of this one otherwise.
	if over {
		l.h.Release()
	}
	_, err := l.h.Add(ctx, fullName(name))
	return l, err
}

// Got holds the image with that ID, as it was looked up or pulled by its name.
// intact is false if it was removed meanwhile under another name: look it up
// or pull it again, and call Got again. The error is ctx's.
func (l *ImageLookup) Got(ctx context.Context, id string) (intact bool, err error) {
	intact, err = l.h.Add(ctx, fullName(id))
	if err == nil {
		l.of.mu.Lock()
		l.of.got = append(l.of.got, id)
		l.of.mu.Unlock()
	}
	return intact, err
}

// Release lets go of the images. By then whatever uses them must be seen in
// ImageStore.Uses. Further calls do nothing, and what is named after it is not held.
func (h *ImageHold) Release() {
	h.mu.Lock()
	held, got := h.held, h.got
	h.over, h.held, h.got = true, nil, nil
	h.mu.Unlock()
	// First the use, then the holds: once these are gone a pass may judge the image, and it
	// has to find it used a moment ago.
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
