package gc_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/nodewright/nodewright/gc"
)

// fakeStore is an image disk in memory. An image takes its size, and what it
// has in common with others is there once.
type fakeStore struct {
	mu       sync.Mutex
	images   []gc.Image
	uses     []gc.ImageUse
	capacity int64
	other    int64 // bytes that are no images
	shared   map[string]int64
	fail     map[string]error // by method, and by ID for removals
	removed  []string
	// removing is called in the middle of a removal, looked after the lists.
	removing func(id string)
	looked   func()
}

func (s *fakeStore) Images(ctx context.Context) ([]gc.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.images), s.fail["Images"]
}

func (s *fakeStore) Uses(ctx context.Context) ([]gc.ImageUse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses, err := slices.Clone(s.uses), s.fail["Uses"]
	if s.looked != nil {
		s.looked()
	}
	return uses, err
}

func (s *fakeStore) Disk(ctx context.Context) (gc.ImageDisk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := int64(0)
	for _, i := range s.images {
		used += i.Size - s.shared[i.ID]
	}
	if len(s.images) > 0 && len(s.shared) > 0 {
		used += s.shared[s.images[0].ID]
	}
	return gc.ImageDisk{Capacity: s.capacity, Available: s.capacity - s.other - used, Images: used}, s.fail["Disk"]
}

func (s *fakeStore) Remove(ctx context.Context, id, handler string) error {
	if s.removing != nil {
		s.removing(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail[id]; err != nil {
		return err
	}
	s.images = slices.DeleteFunc(s.images, func(i gc.Image) bool { return i.ID == id && i.Handler == handler })
	s.removed = append(s.removed, id)
	return nil
}

// add puts images of a size on the disk, with their ID for a tag.
func (s *fakeStore) add(size int64, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.images = append(s.images, gc.Image{ID: "sha256:" + id, Tags: []string{"docker.io/library/" + id + ":latest"}, Size: size})
	}
}

func (s *fakeStore) use(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses = nil
	for _, id := range ids {
		s.uses = append(s.uses, gc.ImageUse{Image: "sha256:" + id, By: "default/pod/c"})
	}
}

// breaks makes a method fail, or a removal of an ID; with nil it works again.
func (s *fakeStore) breaks(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = map[string]error{what: err}
}

func (s *fakeStore) gone() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := ""
	for _, id := range s.removed {
		out += " " + id[len("sha256:"):]
	}
	return out
}

type fakeEvents struct {
	mu   sync.Mutex
	list []string
}

func (e *fakeEvents) Event(eventType, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, eventType+" "+reason)
}

func (e *fakeEvents) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func newManager(t *testing.T, cfg gc.ImageConfig) *gc.ImageCollector {
	t.Helper()
	m, err := gc.NewImageCollector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
