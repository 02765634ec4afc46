package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	errSilent = errors.New("the API server sent nothing on the watch for too long")
	errBackOf = errors.New("resource version went back: the API server's store was wiped or restored")
	errNoList = errors.New("the watch does not begin with a list")
)

// list reads everything in pages.
func (f *Follower[T]) list(ctx context.Context) error {
	opts := metav1.ListOptions{FieldSelector: f.cfg.Fields, Limit: pageSize}
	var all []T
	for {
		page := f.cfg.NewList()
		if err := f.cfg.Client.List(ctx, f.cfg.Resource, f.cfg.Namespace, opts, page); err != nil {
			return fmt.Errorf("list %s: %w", f.cfg.Resource, err)
		}
		err := meta.EachListItemWithAlloc(page, func(o runtime.Object) error {
			if t, ok := o.(T); ok {
				all = append(all, f.trim(t))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", f.cfg.Resource, err)
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("list %s: %w", f.cfg.Resource, err)
		}
		if opts.Continue = m.GetContinue(); opts.Continue == "" {
			f.replace(all, m.GetResourceVersion())
			return nil
		}
	}
}

func (f *Follower[T]) trim(t T) T {
	t.SetManagedFields(nil)
	f.cfg.Trim(t)
	return t
}

func (f *Follower[T]) replace(all []T, version string) {
	f.version, f.anew = version, false
	f.wait.Reset()
	f.cfg.Replace(all, version)
}

// watchList starts a watch that begins with a list (KEP-3157). If the server does not support it,
// lists are used from then on.
func (f *Follower[T]) watchList(ctx context.Context) error {
	yes := true
	err := f.watch(ctx, metav1.ListOptions{
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: &yes,
	})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || errors.Is(err, errNoList) {
		f.plainList = true
		if err = f.list(ctx); err == nil {
			err = f.watch(ctx, metav1.ListOptions{ResourceVersion: f.version})
		}
	}
	return err
}

// watch reports changes until the watch ends.
func (f *Follower[T]) watch(ctx context.Context, opts metav1.ListOptions) error {
	timeout := minTimeout + rand.N(minTimeout)
	seconds := int64(timeout / time.Second)
	opts.TimeoutSeconds, opts.AllowWatchBookmarks, opts.FieldSelector = &seconds, true, f.cfg.Fields
	ctx, cancel := context.WithTimeout(ctx, timeout+overtime)
	defer cancel()
	begun := time.Now()
	opening := time.AfterFunc(openTimeout, cancel)
	w, err := f.cfg.Client.Watch(ctx, f.cfg.Resource, f.cfg.Namespace, opts)
	if !opening.Stop() && err == nil {
		w.Stop()
		err = context.DeadlineExceeded
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", f.cfg.Resource, err)
	}
	defer w.Stop()
	if err := f.take(ctx, w, opts.SendInitialEvents != nil); err != nil {
		return fmt.Errorf("watch %s: %w", f.cfg.Resource, err)
	}
	if time.Since(begun) < timeout-brief {
		f.anew = true // the connection was lost: the next one may lead to another server
	}
	return nil
}

// take reports the events of a watch until it ends. If beginning is true, the watch
// starts with a list, which is reported in one call. It returns an error if the list
// does not arrive within openTimeout, or if the watch is silent for too long.
func (f *Follower[T]) take(ctx context.Context, w watch.Interface, beginning bool) error {
	first := map[string]T{} // objects of the initial list
	late := time.NewTimer(openTimeout)
	defer late.Stop()
	if !beginning {
		f.listen(late)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if beginning {
				return errNoList
			}
			f.anew = true
			return errSilent
		case ev, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if ev.Type == watch.Error {
				return apierrors.FromObject(ev.Object)
			}
			obj, ok := ev.Object.(T)
			if !ok {
				return fmt.Errorf("watch event has an object of type %T", ev.Object)
			}
			switch {
			case beginning && ev.Type != watch.Bookmark:
				key := obj.GetNamespace() + "/" + obj.GetName()
				if ev.Type == watch.Deleted {
					delete(first, key)
				} else {
					first[key] = f.trim(obj)
				}
			case beginning && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
				all := slices.Collect(maps.Values(first))
				beginning, first = false, nil
				f.replace(all, obj.GetResourceVersion())
			case beginning:
			default:
				if err := f.tell(ev.Type, obj); err != nil {
					return err
				}
			}
			if !beginning {
				f.listen(late)
			}
		}
	}
}

// listen restarts the timer for a silent watch, or stops it if the server sends no
// bookmarks.
func (f *Follower[T]) listen(t *time.Timer) {
	if f.marks {
		t.Reset(silence)
	} else {
		t.Stop()
	}
}

// tell records the resource version of an event, and calls Put or Delete. A bookmark of
// an older version is an error: the server's store was wiped or restored.
func (f *Follower[T]) tell(t watch.EventType, obj T) error {
	version := obj.GetResourceVersion()
	if t == watch.Bookmark {
		f.marks = true
		if Older(version, f.version) {
			f.version, f.anew = "", true
			return errBackOf
		}
	}
	f.version = version
	f.wait.Reset()
	switch t {
	case watch.Added, watch.Modified:
		f.cfg.Put(f.trim(obj))
	case watch.Deleted:
		f.cfg.Delete(f.trim(obj))
	}
	return nil
}

// Older reports whether the resource version a is older than b. They are compared as
// numbers (KEP-5504). If one of them is not a number, the result is false.
func Older(a, b string) bool {
	m, err := strconv.ParseUint(a, 10, 64)
	n, err2 := strconv.ParseUint(b, 10, 64)
	return err == nil && err2 == nil && m < n
}
