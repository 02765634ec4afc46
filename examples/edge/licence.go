package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
)

// Values of a record, whose key is the pod's UID. asked means that a request may have been
// sent and its result is not known: the licence may or may not be granted. held means that the
// licence is granted.
const (
	asked = "asked"
	held  = "held"
)

// askAgain is the time between two attempts to get a licence.
const askAgain = 5 * time.Second

// licences is a part that requests a licence before a pod starts, and returns the
// licence when the pod is removed. Its methods may be called from any goroutine.
type licences struct {
	server *licenceServer
	store  part.Store
	turns  turns

	host part.Host

	mu    sync.Mutex
	has   map[types.UID]bool
	waits map[types.UID]string // explanation of the wait
}

var (
	_ part.Joiner    = (*licences)(nil)
	_ part.Preparer  = (*licences)(nil)
	_ part.Finisher  = (*licences)(nil)
	_ part.Sweeper   = (*licences)(nil)
	_ part.Explainer = (*licences)(nil)
)

func newLicences(url string, store part.Store) (*licences, error) {
	return &licences{
		server: &licenceServer{url: url, client: newClient()}, store: store,
		has: map[types.UID]bool{}, waits: map[types.UID]string{},
	}, checkURL("licences", url)
}

// Name implements part.Part.
func (*licences) Name() string { return "licences" }

// Join implements part.Joiner.
func (l *licences) Join(h part.Host) error {
	if l.host != nil {
		return errors.New("the part belongs to another agent")
	}
	l.host = h
	return nil
}

// Prepare implements part.Preparer: it acquires the licence before the sandbox is created.
func (l *licences) Prepare(ctx context.Context, pod *v1.Pod, _ *observed.Pod) error {
	product := pod.Annotations[wantsLicence]
	if product == "" || l.holds(pod.UID) {
		return nil
	}
	done, err := l.turns.take(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer done()
	if err = l.acquire(ctx, pod, product); ctx.Err() != nil {
		return ctx.Err() // the pod was deleted, or the agent stops
	}
	return l.note(pod, product, err)
}

// acquire requests the licence, unless the record shows that an earlier process of the
// agent got it.
func (l *licences) acquire(ctx context.Context, pod *v1.Pod, product string) error {
	key := string(pod.UID)
	record, err := l.store.Read(key)
	switch {
	case err == nil && string(record) == held:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = l.store.Write(key, []byte(asked))
	}
	if err != nil {
		return err
	}
	if err := l.server.acquire(ctx, key, product, pod.Namespace+"/"+pod.Name); err != nil {
		return err
	}
	if err := l.store.Write(key, []byte(held)); err != nil {
		return err
	}
	l.host.Event(pod, nil, v1.EventTypeNormal, "LicenceGranted", "Licence \""+product+"\" granted")
	return nil
}

// Gone implements part.Finisher.
func (l *licences) Gone(ctx context.Context, pod part.Ref) error {
	return l.giveBack(ctx, pod.UID, func(uid types.UID) bool { _, wanted := l.host.Pod(uid); return wanted })
}

// Sweep implements part.Sweeper: it returns the licences of pods that were deleted
// while no agent ran. For other pods the agent calls Gone.
func (l *licences) Sweep(ctx context.Context, known func(types.UID) bool) error {
	keys, err := l.store.Keys()
	errs := []error{err}
	for _, key := range keys {
		if uid := types.UID(key); !known(uid) && !l.holds(uid) && l.waitsFor(uid) == "" {
			errs = append(errs, l.giveBack(ctx, uid, known))
		}
	}
	return errors.Join(errs...)
}

// giveBack returns the licence of a pod, unless the pod is wanted again.
func (l *licences) giveBack(ctx context.Context, uid types.UID, wanted func(types.UID) bool) error {
	done, err := l.turns.take(ctx, uid)
	if err != nil {
		return err
	}
	defer done()
	had := l.forget(uid)
	if wanted(uid) { // checked after forget, so that a concurrent Prepare waits for the lock of the pod
		l.set(uid, had)
		return nil
	}
	key := string(uid)
	if _, err := l.store.Read(key); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := l.store.Write(key, []byte(asked)); err != nil {
		return err
	}
	if err := l.server.giveBack(ctx, key); err != nil {
		return fmt.Errorf("return a licence: %w", err)
	}
	return l.store.Delete(key)
}
