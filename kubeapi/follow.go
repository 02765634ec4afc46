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
	// openTimeout limits the time until a watch begins, and until its first state has arrived.
	openTimeout = 30 * time.Second
	// A watch is requested for a random time between minTimeout and twice minTimeout, as
	// in client-go's reflector.
	minTimeout = 5 * time.Minute
	// overtime is how long the client waits beyond the requested duration of a watch before
	// it ends the watch itself.
	overtime = 30 * time.Second
	// silence is the longest time without events of a watch with bookmarks, which come once a
	// minute.
	silence = 3 * time.Minute
	// A watch that ends within brief counts as a failure.
	brief = time.Second

	minFollowPause = 200 * time.Millisecond
	maxFollowPause = 10 * time.Second

	pageSize = 500 // objects of a list; client-go's
)

// FollowedObject is the type of objects that can be followed.
type FollowedObject interface {
	runtime.Object
	metav1.Object
	comparable
}

// FollowConfig configures a [Follower]. Client, Resource, NewList, Replace, Put and
// Delete are required. The functions are called one at a time. They own the objects
// that they get, from which the managed fields are removed.
type FollowConfig[T FollowedObject] struct {
	Client    ListWatcher
	Resource  Resource
	Namespace string // if "", objects of all namespaces are read
	Fields    string // a selector of fields; everything

	NewList func() runtime.Object // an empty list of the kind
	// Trim removes fields that are not needed from an object, before more objects are read. If it
	// is nil, all fields are kept.
	Trim func(T)

	// Replace gets all objects, and the server's version of the list.
	Replace     func(all []T, version string)
	Put, Delete func(T)
	// Failed gets the error of a failed try, and the time until the next one. If it is nil,
	// nothing is called.
	Failed func(err error, again time.Duration)
	// Gate is waited for before each try, if it is not nil.
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

// Follower reports the objects of one kind at an API server: all of them first,
// then every change.
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
// It works like a client-go reflector, for an agent that follows hundreds of single
// objects and whose server may be away for days: each Follower has one goroutine, which
// ends with Run; every failure is reported; and with a common [Gate] only one Follower
// tries while the server is away, and the others continue when it succeeds.
//
// # Faults
//
// The first state comes with the watch if the server supports that, and otherwise from
// a list. It comes from a quorum read, never from a cache. A watch that ends regularly
// is continued from the last version. After a watch that broke off, after 410 Gone, or
// if the server was unreachable, everything is read again. A server with another
// history, because its store was wiped, is detected at once, by a bookmark, or by a
// refusal. If the server sends bookmarks, one a minute, a watch without events ends
// after three minutes. Otherwise it ends at the latest about ten minutes after it
// began. After failures there are pauses from 200 ms to 10 s with jitter, or longer if
// the server requests it.
type Follower[T FollowedObject] struct {
	cfg FollowConfig[T]

	version   string // of the last report; "" is none
	anew      bool   // everything has to be read again
	plainList bool   // this server's watches cannot begin with a list
	marks     bool   // the server sends bookmarks
	wait      retry.Backoff
}

// NewFollower checks cfg and returns a Follower, which Run starts.
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

// Run follows the objects until ctx ends, and returns nil then. It may be called
// once.
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

// pause counts a failure and returns the time until the next try.
func (f *Follower[T]) pause(err error) time.Duration {
	d := retry.Jitter(f.wait.Next()/2, 2)
	if asked, ok := RetryAfter(err); ok {
		d = max(d, asked)
	}
	return d
}

// try reads the objects if needed, and watches until the watch ends.
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

// IsAnswer reports whether an error is the answer of an API server. It returns false if there was
// no answer.
func IsAnswer(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code != 0
}

// isTooLarge reports whether the error says that the requested resource version is newer
// than the server's newest one.
func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
