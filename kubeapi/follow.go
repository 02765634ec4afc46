package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/internal/retry"
)

const (
	// openTimeout is what a watch may take to begin, and what its first state
	// may take to arrive.
	openTimeout = 30 * time.Second
	// A watch lasts between minTimeout and twice that; client-go's reflector
	// uses the same.
	minTimeout = 5 * time.Minute
	// overtime is what a watch gets at this end beyond what it asks the server
	// for.
	overtime = 30 * time.Second
	// silence is what a watch with bookmarks, which come once a minute, may go
	// without a word.
	silence = 3 * time.Minute
	// brief is a watch that was none: it counts as a failure.
	brief = time.Second

	minFollowPause = 200 * time.Millisecond
	maxFollowPause = 10 * time.Second

	pageSize = 500 // objects of a list; client-go's
)

// FollowedObject is what can be followed.
type FollowedObject interface {
	runtime.Object
	metav1.Object
	comparable
}

// FollowConfig defines what to follow. Client, Resource, NewList, Replace, Put and
// Delete are required. The functions are called one at a time. The objects
// belong to who gets them, and come without managed fields.
type FollowConfig[T FollowedObject] struct {
	Client    ListWatcher
	Resource  Resource
	Namespace string // "" is all
	Fields    string // a selector of fields; everything

	NewList func() runtime.Object // an empty list of the kind
	// Trim takes away what is not needed, before more is read; nothing.
	Trim func(T)

	// Replace reports all there is, and the server's version of that.
	Replace     func(all []T, version string)
	Put, Delete func(T)
	// Failed reports that a try failed, and when the next one will be; nobody.
	Failed func(err error, again time.Duration)
	// Gate is waited for before each try; nothing is waited for.
	Gate *Gate
}

func (c FollowConfig[T]) validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Client": c.Client == nil, "Resource": c.Resource.Name == "", "NewList": c.NewList == nil,
		"Replace": c.Replace == nil, "Put": c.Put == nil, "Delete": c.Delete == nil,
	} {
		if missing {
			errs = append(errs, errors.New("Config."+name+" is required"))
		}
	}
	return errors.Join(errs...)
}

// Follower keeps somebody up to date with the objects of one kind that an
// API server has: all of them first, then every change.
//
//	f, err := kubeapi.NewFollower(kubeapi.FollowConfig[*v1.Pod]{
//		Client: client, Resource: kubeapi.Pods, Fields: "spec.nodeName=edge-1",
//		NewList: func() runtime.Object { return &v1.PodList{} },
//		Replace: func(all []*v1.Pod, version string) { ... },
//		Put:     func(pod *v1.Pod) { ... },
//		Delete:  func(pod *v1.Pod) { ... },
//	})
//	...
//	err = f.Run(ctx)
//
// It does what a client-go reflector does, for an agent that follows hundreds
// of single objects and whose server may be away for days: one goroutine each,
// nothing that outlives Run, every failure told, and a [Gate] by which one of
// them finds out that the server is back, for all.
//
// # Faults
//
// The first state comes with the watch itself where the server offers that, and
// from a list otherwise; always from a quorum, never from a cache that may lag.
// A watch that ends in its time is continued from the last version; after one
// that was cut off, after 410 Gone, or when the server was not to be reached,
// everything is read anew. A server whose history is another one, because its
// store was wiped, is so noticed at once, or by a bookmark or a refusal. A watch that goes silent ends after three minutes if the server
// sends bookmarks, which it does each minute, and otherwise ten minutes after
// it began at the latest, whatever becomes of the connection. Failures are
// followed by pauses from 200 ms to 10 s with jitter, longer if the server says
// so.
type Follower[T FollowedObject] struct {
	cfg FollowConfig[T]

	version   string // of what was told last; "" is nothing
	anew      bool   // everything is to be read again
	plainList bool   // watches of this server cannot begin with a list
	marks     bool   // the server sends bookmarks
	wait      retry.Backoff
}

// NewFollower checks cfg and returns a Follower at rest.
func NewFollower[T FollowedObject](cfg FollowConfig[T]) (*Follower[T], error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	if cfg.Trim == nil {
		cfg.Trim = func(T) {}
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error, time.Duration) {}
	}
	return &Follower[T]{cfg: cfg, anew: true, wait: retry.Backoff{First: minFollowPause, Max: maxFollowPause}}, nil
}

// Run follows until ctx ends, and returns nil then. It may be called once.
func (f *Follower[T]) Run(ctx context.Context) error {
	for {
		if !f.cfg.Gate.Wait(ctx) {
			return nil
		}
		begun := time.Now()
		err := f.try(ctx)
		if over(ctx) {
			return nil
		}
		if err == nil && time.Since(begun) >= brief {
			continue
		}
		pause := f.pause(err)
		if err != nil {
			f.cfg.Failed(err, pause)
		}
		if !retry.Sleep(ctx, pause) {
			return nil
		}
	}
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// pause counts a failure and says how long to wait.
func (f *Follower[T]) pause(err error) time.Duration {
	d := retry.Jitter(f.wait.Next()/2, 2)
	if asked, ok := RetryAfter(err); ok {
		d = max(d, asked)
	}
	return d
}

// try reads what has to be read and watches until the watch ends.
func (f *Follower[T]) try(ctx context.Context) error {
	var err error
	switch {
	case !f.anew:
		err = f.watch(ctx, metav1.ListOptions{ResourceVersion: f.version})
	case f.plainList:
		if err = f.list(ctx); err == nil {
			err = f.watch(ctx, metav1.ListOptions{ResourceVersion: f.version})
		}
	default:
		err = f.watchList(ctx)
	}
	switch {
	case err == nil:
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), isTooLarge(err):
		f.version, f.anew = "", true
	case !IsAnswer(err):
		f.anew = true // it may be another server when it is back
	}
	return err
}

// IsAnswer reports whether an error is what an API server said; otherwise there
// was none.
func IsAnswer(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code != 0
}

// isTooLarge reports that the server has not got to that version yet, or never
// will.
func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
