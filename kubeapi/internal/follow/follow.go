package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/kubeapi/apiclient"
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

	minPause = 200 * time.Millisecond
	maxPause = 10 * time.Second

	pageSize = 500 // objects of a list; client-go's
)

// Object is what can be followed.
type Object interface {
	runtime.Object
	metav1.Object
	comparable
}

// Config defines what to follow. Client, Resource, NewList, Replace, Put and
// Delete are required. The functions are called one at a time. The objects
// belong to who gets them, and come without managed fields.
type Config[T Object] struct {
	Client    apiclient.ListWatcher
	Resource  apiclient.Resource
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

// object is an Object of any kind.
type object interface {
	runtime.Object
	metav1.Object
}

// plain is a Config without its type: what works is made once, and not for each
// kind, which would be 15 kB of each.
type plain struct {
	Client    apiclient.ListWatcher
	Resource  apiclient.Resource
	Namespace string
	Fields    string
	NewList   func() runtime.Object
	Failed    func(err error, again time.Duration)
	Gate      *Gate

	is          func(runtime.Object) (object, bool)
	trim        func(object)
	replace     func(all []object, version string)
	put, delete func(object)
}

func (c plain) validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Client": c.Client == nil, "Resource": c.Resource.Name == "", "NewList": c.NewList == nil,
		"Replace": c.replace == nil, "Put": c.put == nil, "Delete": c.delete == nil,
	} {
		if missing {
			errs = append(errs, errors.New("Config."+name+" is required"))
		}
	}
	return errors.Join(errs...)
}

// untyped is a function for objects of any kind that one for those of T is.
func untyped[T Object](fn func(T)) func(object) {
	if fn == nil {
		return nil
	}
	return func(o object) { fn(o.(T)) }
}

// plain is c without its type.
func (c Config[T]) plain() plain {
	p := plain{
		Client: c.Client, Resource: c.Resource, Namespace: c.Namespace, Fields: c.Fields, NewList: c.NewList, Failed: c.Failed, Gate: c.Gate,
		is:   func(o runtime.Object) (object, bool) { t, ok := o.(T); return t, ok },
		trim: untyped(c.Trim), put: untyped(c.Put), delete: untyped(c.Delete),
	}
	if c.Replace != nil {
		p.replace = func(all []object, version string) {
			typed := make([]T, len(all))
			for i := range all {
				typed[i] = all[i].(T)
			}
			c.Replace(typed, version)
		}
	}
	return p
}

// Follower follows objects.
type Follower struct {
	cfg plain

	version   string // of what was told last; "" is nothing
	anew      bool   // everything is to be read again
	plainList bool   // watches of this server cannot begin with a list
	marks     bool   // the server sends bookmarks
	wait      retry.Backoff
}

// New checks cfg and returns a Follower at rest.
func New[T Object](cfg Config[T]) (*Follower, error) { return newFollower(cfg.plain()) }

func newFollower(cfg plain) (*Follower, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	if cfg.trim == nil {
		cfg.trim = func(object) {}
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error, time.Duration) {}
	}
	return &Follower{cfg: cfg, anew: true, wait: retry.Backoff{First: minPause, Max: maxPause}}, nil
}

// Run follows until ctx ends, and returns nil then. It may be called once.
func (f *Follower) Run(ctx context.Context) error {
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
func (f *Follower) pause(err error) time.Duration {
	d := retry.Jitter(f.wait.Next()/2, 2)
	if asked, ok := apiclient.RetryAfter(err); ok {
		d = max(d, asked)
	}
	return d
}

// try reads what has to be read and watches until the watch ends.
func (f *Follower) try(ctx context.Context) error {
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
