package store

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A program that changes files all the time does not keep the changes of others from
// being reported.
func TestFollowWhileEventsGoOn(t *testing.T) {
	d := NewDir(t.TempDir())
	if _, err := d.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.path, "a.yaml"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		events := make(chan struct{})
		running.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(burst / 2)
				select {
				case events <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
		reported := make(chan []Document, 1)
		running.Go(func() {
			_ = d.follow(ctx, busy(events), func(docs []Document) { reported <- docs })
		})
		select {
		case docs := <-reported:
			if len(docs) != 1 || docs[0].Name != "a.yaml" {
				t.Errorf("reported %v", docs)
			}
		case <-time.After(2 * burst):
			t.Error("not reported")
		}
	})
}

// busy is a watched directory with events.
type busy chan struct{}

func (busy) Watch(context.Context, ...string) bool { return true }
func (b busy) Changed() <-chan struct{}            { return b }
