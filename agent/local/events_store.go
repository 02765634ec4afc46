package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeKey is the key of the node's events in the store; podPrefix begins the keys of pods' events.
const (
	nodeKey   = "node"
	podPrefix = "pod-"
)

// storeDelay is how long events are collected before they are written.
const storeDelay = 10 * time.Second

// EventStore stores the events of a pod, or of the node, under a key; *checkpoint.Store implements
// it.
type EventStore interface {
	// Read returns an error that wraps fs.ErrNotExist if there is no value.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
	Keys() ([]string, error)
}

// storedEvents is the format of a value in an EventStore.
type storedEvents struct {
	Version int        `json:"version"`
	Events  []v1.Event `json:"events"`
}

// Keep loads the events that an earlier process stored. Then it stores new events until ctx ends,
// and once more at the end. It collects events for ten seconds before it writes, and writes
// repetitions only with the next new event; a crash may lose these. Errors of the store are
// logged.
func (l *EventLog) Keep(ctx context.Context, store EventStore) error {
	l.restore(store)
	for {
		select {
		case <-ctx.Done():
			l.store(store)
			return nil
		case <-l.changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(storeDelay):
			l.store(store)
			continue
		}
		l.store(store)
		return nil
	}
}

// restore merges the stored events with those recorded since.
func (l *EventLog) restore(store EventStore) {
	keys, err := store.Keys()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Warn("failed to read stored events", zap.Error(err))
		return
	}
	for _, key := range keys {
		old, err := readEvents(store, key)
		if err != nil {
			l.log.Warn("failed to read stored events", zap.String("key", key), zap.Error(err))
			continue
		}
		if len(old) == 0 {
			continue
		}
		l.mu.Lock()
		if uid, ok := strings.CutPrefix(key, podPrefix); ok {
			l.pods[types.UID(uid)] = mergeEvents(old, l.pods[types.UID(uid)])
		} else if key == nodeKey {
			l.events = mergeEvents(old, l.events)
		}
		l.mu.Unlock()
	}
}

func readEvents(store EventStore, key string) ([]v1.Event, error) {
	b, err := store.Read(key)
	if err != nil {
		return nil, err
	}
	var s storedEvents
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	if s.Version != 1 {
		return nil, fmt.Errorf("version %d of stored events is not known; want 1", s.Version)
	}
	return first(s.Events, perObject), nil
}

// mergeEvents merges the lists old and newer, which have the events of one object.
func mergeEvents(old, newer []v1.Event) []v1.Event {
	for _, ev := range newer {
		if i := slices.IndexFunc(old, func(was v1.Event) bool { return sameEvent(&was, &ev) }); i >= 0 {
			ev.Count += old[i].Count
			ev.FirstTimestamp = old[i].FirstTimestamp
			old = slices.Delete(old, i, i+1)
		}
		old = append(old, ev)
	}
	return old[max(0, len(old)-perObject):]
}

// store writes the events of objects that have changed.
func (l *EventLog) store(store EventStore) {
	l.mu.Lock()
	keys := slices.Sorted(maps.Keys(l.changes))
	clear(l.changes)
	select {
	case <-l.changed: // it is stored now
	default:
	}
	l.mu.Unlock()
	for _, key := range keys {
		events := l.OfNode()
		if uid, ok := strings.CutPrefix(key, podPrefix); ok {
			events = l.Of(types.UID(uid))
		}
		if err := storeEvents(store, key, events); err != nil {
			l.log.Warn("failed to store events", zap.String("key", key), zap.Error(err))
		}
	}
}

func storeEvents(store EventStore, key string, events []v1.Event) error {
	if len(events) == 0 {
		if err := store.Delete(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.Marshal(storedEvents{Version: 1, Events: events})
	if err != nil {
		return err
	}
	return store.Write(key, b)
}
