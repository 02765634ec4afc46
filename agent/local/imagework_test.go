package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/agent/local"
)

// storekeeper is an agent with images by name.
type storekeeper struct {
	fakeAgent
	images map[string]string
	used   string
	hold   chan struct{} // pulls wait for it, if it is not nil
	begun  chan struct{}
}

func (k *storekeeper) PullImage(_ context.Context, image string) (string, error) {
	if k.hold != nil {
		k.begun <- struct{}{}
		<-k.hold
	}
	if image == "gone" {
		return "", fmt.Errorf("image %q: %w", image, local.ErrNotFound)
	}
	return "sha256:" + image, nil
}

func (k *storekeeper) LoadImages(_ context.Context, archive io.Reader, name string) ([]string, error) {
	b, err := io.ReadAll(archive)
	if string(b) == "bad" {
		return nil, errors.New("no archive")
	}
	return []string{string(b), name}, err
}

func (k *storekeeper) RemoveImage(_ context.Context, image string, force bool) error {
	if image == k.used && !force {
		return errors.New("pod web uses it")
	}
	delete(k.images, image)
	return nil
}

func TestImageWork(t *testing.T) {
	k := &storekeeper{images: map[string]string{"a": "", "b": ""}, used: "b"}
	c := serveFit(t, k)
	if id, err := c.PullImage(t.Context(), "registry/app:1@sha256:0"); id != "sha256:registry/app:1@sha256:0" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := c.PullImage(t.Context(), "gone"); !errors.Is(err, local.ErrNotFound) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("an image that is nowhere: %v", err)
	}
	if ids, err := c.LoadImages(t.Context(), strings.NewReader("tar"), "n"); !slices.Equal(ids, []string{"tar", "n"}) || err != nil {
		t.Errorf("%q, %v", ids, err)
	}
	if err := c.RemoveImage(t.Context(), "a", false); err != nil || len(k.images) != 1 {
		t.Errorf("%v, %v", k.images, err)
	}
	if err := c.RemoveImage(t.Context(), "b", false); err == nil || !strings.Contains(err.Error(), "pod web") {
		t.Errorf("an image in use: %v", err)
	}
	if err := c.RemoveImage(t.Context(), "b", true); err != nil || len(k.images) != 0 {
		t.Errorf("an image in use, with force: %v, %v", k.images, err)
	}
	for name, err := range map[string]error{
		`no archive`:                           second(c.LoadImages(t.Context(), strings.NewReader("bad"), "")),
		`image=""; want the name of an image`:  c.RemoveImage(t.Context(), "", false),
		`image has 1025 bytes; want at most`:   second(c.PullImage(t.Context(), strings.Repeat("x", 1025))),
		`does not pull, load or remove images`: second(serveFit(t, &fakeAgent{}).PullImage(t.Context(), "a")),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// More than 8 pulls at a time are refused, and none is once they have ended.
func TestImageWorkIsBounded(t *testing.T) {
	k := &storekeeper{hold: make(chan struct{}), begun: make(chan struct{})}
	c := serveFit(t, k)
	ended := make(chan error)
	for range 8 {
		go func() { ended <- second(c.PullImage(context.Background(), "a")) }()
		<-k.begun
	}
	if _, err := c.PullImage(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "try again later") {
		t.Errorf("the ninth: %v", err)
	}
	close(k.hold)
	for range 8 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	k.hold = nil
	if _, err := c.PullImage(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}
