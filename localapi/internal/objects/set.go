package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/store"
)

// Config holds what a Set needs. All fields are required.
type Config struct {
	// Namespaces is the kind of namespaces.
	Namespaces Kind
	// Store keeps Owned objects.
	Store store.Store
	// Document is an object as it is kept.
	Document func(Kind, Object) (store.Document, error)
	// New fills in what is known of an object that was not there before. It must not call the Set.
	New func(Object)
	// Changed is called after each change of an object of a kind.
	Changed func(Kind)
}

// Set has all objects. Its methods may be called from any goroutine.
type Set struct {
	cfg  Config
	turn chan struct{} // held by who changes what is kept

	mu       sync.Mutex
	revision uint64
	entries  map[Kind]map[Key]Entry
	owned    map[types.UID]map[Ref]bool // where objects are that name an owner
	count    int
	within   map[string]int // Owned objects by namespace
	window   window
	closed   bool
}

// New returns a Set without objects.
func New(cfg Config) *Set {
	return &Set{
		cfg: cfg, turn: make(chan struct{}, 1), entries: map[Kind]map[Key]Entry{}, owned: map[types.UID]map[Ref]bool{}, within: map[string]int{},
		window: window{moved: make(chan struct{})},
	}
}

// Begin sets the revision that all further ones are above. No watch goes on from an earlier one.
func (s *Set) Begin(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = revision
	s.window.steps, s.window.size = nil, 0
}

// Get returns an object; false means that it is not there.
func (s *Set) Get(k Kind, name Key) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[k][name]
	return e, ok
}

// List returns the objects of a kind, in a namespace or, with "", in all of them, in no order.
func (s *Set) List(k Kind, namespace string) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Entry
	for name, e := range s.entries[k] {
		if namespace == "" || name.Namespace == namespace {
			out = append(out, e)
		}
	}
	return out
}

// Len is how many objects of a kind there are.
func (s *Set) Len(k Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries[k])
}

// ByFile finds what was read from a file.
func (s *Set) ByFile(name string) (Kind, Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, all := range s.entries {
		for _, e := range all {
			if e.File == name {
				return k, e, true
			}
		}
	}
	return nil, Entry{}, false
}

// Dependents are where the objects are that name an object as their owner, in no order.
func (s *Set) Dependents(uid types.UID) (out []Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.owned[uid] {
		out = append(out, r)
	}
	return out
}

// Owned is how many Owned objects there are in a namespace.
func (s *Set) Owned(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.within[namespace]
}

// Count is how many objects there are.
func (s *Set) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Turn is the right to change what is kept. One at a time has it.
type Turn struct{ set *Set }

// Turn waits for the right to change what is kept; End gives it back.
func (s *Set) Turn(ctx context.Context) (*Turn, error) {
	select {
	case s.turn <- struct{}{}:
		return &Turn{s}, nil
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("others are still at writing; try again", 1)
	}
}

// TryTurn is Turn of who does not wait; nil means that somebody else has it.
func (s *Set) TryTurn() *Turn {
	select {
	case s.turn <- struct{}{}:
		return &Turn{s}
	default:
		return nil
	}
}

// End gives the right back.
func (t *Turn) End() { <-t.set.turn }

// Result is what has become of an object.
type Result struct {
	// Object is as it is now, or as it was last if it is Absent.
	Object Object
	Phase  Phase
}

// Apply has a change take effect, or returns why it does not: an error of the API, or one of the store.
func (t *Turn) Apply(ch Change) (Result, error) {
	s := t.set
	s.mu.Lock()
	cur, next, do, err := s.decided(ch)
	s.mu.Unlock()
	if err != nil || ch.DryRun || do == 0 {
		return result(cur, next), err
	}
	if do&save != 0 {
		if err := s.save(cur, &next, ch); err != nil {
			return Result{}, err
		}
	}
	if do&erase != 0 {
		if err := s.stored(ch, cur.File, s.cfg.Store.Delete(cur.File, cur.At)); err != nil {
			return Result{}, err
		}
	}
	s.mu.Lock()
	if now := s.entries[ch.Kind][ch.Key]; now.Object != nil && cur.Object != nil && next.Object != nil && do&another == 0 {
		carry(next.Object, cur.Object, now.Object)
	}
	r := s.commit(ch, next, do)
	s.mu.Unlock()
	s.cfg.Changed(ch.Kind)
	return r, nil
}

// ErrTurn is the answer to a Note of what has to be on the disk.
var ErrTurn = errors.New("the change has to be kept: it needs a turn")

// Note has a change take effect that is in memory alone; it waits for no disk. ErrTurn means that it is not.
func (s *Set) Note(ch Change) (Result, error) {
	s.mu.Lock()
	cur, next, do, err := s.decided(ch)
	if err == nil && do&(save|erase) != 0 {
		err = ErrTurn
	}
	if err != nil || do == 0 {
		s.mu.Unlock()
		return result(cur, next), err
	}
	r := s.commit(ch, next, do)
	s.mu.Unlock()
	s.cfg.Changed(ch.Kind)
	return r, nil
}

// Refuses returns why a change cannot be, whatever the object is to become; nil is no reason.
func (s *Set) Refuses(ch Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return refuse(s.entries[ch.Kind][ch.Key], s.namespace(ch), ch)
}

// result is what becomes of an object by a decision.
func result(cur, next Entry) Result {
	if next.Object == nil {
		return Result{cur.Object, Absent}
	}
	return Result{next.Object, next.Phase()}
}

func (s *Set) decided(ch Change) (cur, next Entry, do effects, err error) {
	cur = s.entries[ch.Kind][ch.Key]
	next, do, err = decide(cur, s.namespace(ch), ch, time.Now())
	return cur, next, do, err
}

// namespace is how far the namespace of an object is; one of a kind that has none is in one that is Live.
func (s *Set) namespace(ch Change) Phase {
	if ch.Key.Namespace == "" {
		return Live
	}
	return s.entries[s.cfg.Namespaces][Key{Name: ch.Key.Namespace}].Phase()
}

// save writes the file of an object, unless it says the same already.
func (s *Set) save(cur Entry, next *Entry, ch Change) error {
	doc, err := s.cfg.Document(ch.Kind, next.Object)
	if err != nil {
		return err
	}
	if cur.File != "" && ch.Verb != Replace {
		before, err := s.cfg.Document(ch.Kind, cur.Object)
		if err == nil && bytes.Equal(before.Object, doc.Object) && bytes.Equal(before.Notes, doc.Notes) {
			return nil
		}
	}
	if next.File != "" {
		doc.Name = next.File
	}
	doc.By, doc.At = ch.By, time.Now()
	at, err := s.cfg.Store.Put(doc, next.At)
	if err := s.stored(ch, doc.Name, err); err != nil {
		return err
	}
	next.File, next.At = doc.Name, at
	return nil
}

// stored is an error of the store as clients get it.
func (s *Set) stored(ch Change, file string, err error) error {
	if errors.Is(err, store.ErrConflict) {
		return apierrors.NewConflict(ch.resource(), ch.Key.Name, fmt.Errorf("its file %s has been changed by somebody else; look at it again", file))
	}
	return err
}

// commit has a decision take effect. s.mu is held.
func (s *Set) commit(ch Change, next Entry, do effects) Result {
	cur := s.entries[ch.Kind][ch.Key]
	if do&show == 0 {
		next.size = cur.size
		s.put(ch, next)
		return Result{next.Object, next.Phase()}
	}
	gone := cur.Object
	if cur.Object != nil && (next.Object == nil || do&another != 0) {
		gone = s.drop(ch, cur)
	}
	if next.Object == nil {
		return Result{gone, Absent}
	}
	if cur.Object == nil || do&another != 0 {
		s.cfg.New(next.Object)
	}
	step := Step{Kind: ch.Kind, Now: next.Object}
	if do&another == 0 {
		step.Before = cur.Object
	}
	s.revision++
	next.Object.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	next.Object.GetObjectKind().SetGroupVersionKind(ch.Kind.Type().GroupVersionKind)
	next.size = sizeOf(next.Object)
	step.Revision, step.size = s.revision, next.size
	s.put(ch, next)
	s.window.add(step)
	s.age()
	return Result{next.Object, next.Phase()}
}

// sizeOf is about what Go has for an object, in bytes.
func sizeOf(o Object) int {
	size := 1 << 10
	if s, ok := o.(interface{ Size() int }); ok {
		size += 2 * s.Size()
	}
	return size
}

func (s *Set) put(ch Change, next Entry) {
	s.counted(ch.Key, next, 1)
	all := s.entries[ch.Kind]
	if all == nil {
		all = map[Key]Entry{}
		s.entries[ch.Kind] = all
	}
	cur, was := all[ch.Key]
	if was {
		s.counted(ch.Key, cur, -1)
	}
	s.index(Ref{ch.Kind, ch.Key}, cur.Object, next.Object)
	all[ch.Key] = next
}

// drop removes an object, and returns it as it was last. What is in memory alone goes with its namespace.
func (s *Set) drop(ch Change, cur Entry) Object {
	delete(s.entries[ch.Kind], ch.Key)
	s.counted(ch.Key, cur, -1)
	s.index(Ref{ch.Kind, ch.Key}, cur.Object, nil)
	s.revision++
	last := cur.Object.DeepCopyObject().(Object)
	last.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	s.window.add(Step{Revision: s.revision, Kind: ch.Kind, Before: last, size: cur.size})
	s.age()
	if ch.Kind == s.cfg.Namespaces {
		for k, all := range s.entries {
			for name, e := range all {
				if e.Origin == Fleeting && name.Namespace == ch.Key.Name {
					s.drop(Change{Kind: k, Key: name}, e)
				}
			}
		}
	}
	return last
}

func (s *Set) counted(name Key, e Entry, n int) {
	s.count += n
	if e.Origin != Owned || name.Namespace == "" {
		return
	}
	if s.within[name.Namespace] += n; s.within[name.Namespace] == 0 {
		delete(s.within, name.Namespace)
	}
}

// index notes which owners an object names.
func (s *Set) index(at Ref, was, is Object) {
	if was != nil {
		for _, r := range was.GetOwnerReferences() {
			delete(s.owned[r.UID], at)
			if len(s.owned[r.UID]) == 0 {
				delete(s.owned, r.UID)
			}
		}
	}
	if is != nil {
		for _, r := range is.GetOwnerReferences() {
			if s.owned[r.UID] == nil {
				s.owned[r.UID] = map[Ref]bool{}
			}
			s.owned[r.UID][at] = true
		}
	}
}
