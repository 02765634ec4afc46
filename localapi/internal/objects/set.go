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
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/nodewright/nodewright/localapi/store"
)

// Config holds what a Set needs. All fields are required.
type Config struct {
	// Namespaces is the Kind of Namespace objects, which other objects need.
	Namespaces Kind
	// Store stores Owned objects.
	Store store.Store
	// Document returns an object in its stored form.
	Document func(Kind, Object) (store.Document, error)
	// New sets fields of an object that did not exist before. It must not call the Set.
	New func(Object)
	// Changed is called after each change of an object of a kind, with the entry before
	// (was) and after it (is).
	Changed func(k Kind, was, is Entry)
}

// Set has all objects. It is safe for concurrent use.
type Set struct {
	cfg  Config
	turn chan struct{} // held by the current writer
	line chan struct{} // held by one client that waits for the turn, or has it

	// mu is held only for short operations on a tree. A reader of many objects uses a clone of
	// the tree.
	mu       sync.Mutex
	revision uint64
	entries  map[Kind]*tree
	owned    map[types.UID]map[Ref]bool // the objects that name an owner, by its UID
	count    int
	within   map[string]int // number of Owned objects, by namespace
	window   window
	closed   bool
}

// New returns a Set without objects.
func New(cfg Config) *Set {
	return &Set{
		cfg: cfg, turn: make(chan struct{}, 1), line: make(chan struct{}, 1), entries: map[Kind]*tree{}, owned: map[types.UID]map[Ref]bool{}, within: map[string]int{},
		window: window{moved: make(chan struct{})},
	}
}

// located is an object's entry with its key.
type located struct {
	Key
	Entry
}

// tree has the objects of a kind, sorted by key. Cloning it takes constant time.
type tree = btree.BTree[located]

// degree is the degree of the trees. After a clone, a change copies only some nodes of the tree.
const degree = 32

// all returns the tree of a kind. The caller holds s.mu.
func (s *Set) all(k Kind) *tree {
	t := s.entries[k]
	if t == nil {
		t = btree.New(degree, func(a, b located) bool { return a.Key.Compare(b.Key) < 0 })
		s.entries[k] = t
	}
	return t
}

// entry returns an object's entry; the zero value if the object does not exist. The caller holds
// s.mu.
func (s *Set) entry(k Kind, name Key) Entry {
	t := s.entries[k]
	if t == nil {
		return Entry{}
	}
	at, _ := t.Get(located{Key: name})
	return at.Entry
}

// clone returns a copy of the current tree of a kind, for the caller alone.
func (s *Set) clone(k Kind) *tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all(k).Clone()
}

// within calls f for the objects of a namespace, or of all with "", until f returns false.
func within(t *tree, namespace string, f func(located) bool) {
	t.AscendGreaterOrEqual(located{Key: Key{Namespace: namespace}}, func(at located) bool {
		return (namespace == "" || at.Namespace == namespace) && f(at)
	})
}

// Begin sets the first revision; all later ones are greater. No watch can resume from an earlier
// one.
func (s *Set) Begin(revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = revision
	s.window.steps, s.window.size = nil, 0
}

// Get returns an object; false if it does not exist.
func (s *Set) Get(k Kind, name Key) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(k, name)
	return e, e.Object != nil
}

// List returns the objects of a kind, sorted by key, in a namespace or, with "", in all.
func (s *Set) List(k Kind, namespace string) (out []Entry) {
	within(s.clone(k), namespace, func(at located) bool {
		out = append(out, at.Entry)
		return true
	})
	return out
}

// Len returns the number of objects of a kind.
func (s *Set) Len(k Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all(k).Len()
}

// ByFile returns the object that was read from a file.
func (s *Set) ByFile(name string) (kind Kind, found Entry, ok bool) {
	s.mu.Lock()
	now := make(map[Kind]*tree, len(s.entries))
	for k, t := range s.entries {
		now[k] = t.Clone()
	}
	s.mu.Unlock()
	for k, t := range now {
		within(t, "", func(at located) bool {
			if at.File == name {
				kind, found, ok = k, at.Entry, true
			}
			return !ok
		})
	}
	return kind, found, ok
}

// Dependents returns the objects that name an object as their owner, unsorted.
func (s *Set) Dependents(uid types.UID) (out []Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.owned[uid] {
		out = append(out, r)
	}
	return out
}

// Owned returns the number of Owned objects in a namespace.
func (s *Set) Owned(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.within[namespace]
}

// Count returns the number of all objects.
func (s *Set) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Turn is the write lock on stored objects. It has one holder at a time.
type Turn struct {
	set    *Set
	inLine bool
}

// Turn waits for the write lock; End releases it. The server itself and its agent use Turn: they
// wait only for the current holder and for at most one client. If ctx ends first, the error is the
// API's for a timeout.
func (s *Set) Turn(ctx context.Context) (*Turn, error) {
	select {
	case s.turn <- struct{}{}:
		return &Turn{set: s}, nil
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("timed out while waiting for other writers; try again", 1)
	}
}

// ClientTurn is Turn for clients. Only one client at a time competes with the server
// and the agent for the lock.
func (s *Set) ClientTurn(ctx context.Context) (*Turn, error) {
	select {
	case s.line <- struct{}{}:
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("timed out while waiting for other writers; try again", 1)
	}
	t, err := s.Turn(ctx)
	if err != nil {
		<-s.line
		return nil, err
	}
	t.inLine = true
	return t, nil
}

// TryTurn is Turn without waiting. It returns nil if the lock is held.
func (s *Set) TryTurn() *Turn {
	select {
	case s.turn <- struct{}{}:
		return &Turn{set: s}
	default:
		return nil
	}
}

// End releases the write lock.
func (t *Turn) End() {
	<-t.set.turn
	if t.inLine {
		<-t.set.line
	}
}

// Result is the object after a change.
type Result struct {
	// Object is the current object, or its last state if Phase is Absent.
	Object Object
	Phase  Phase
}

// Apply makes a change. If the change is rejected, the error is an API error with the reason;
// otherwise the error is one of the store.
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
	if now := s.entry(ch.Kind, ch.Key); now.Object != nil && cur.Object != nil && next.Object != nil && do&another == 0 {
		carry(next.Object, cur.Object, now.Object)
	}
	r := s.commit(ch, next, do)
	s.mu.Unlock()
	s.cfg.Changed(ch.Kind, cur, next)
	return r, nil
}

// ErrTurn means that Note was called for a change that has to be on disk.
var ErrTurn = errors.New("the change needs a write to disk; use Turn")

// Note makes a change that is only in memory, and does not wait for the disk. For any other
// change it returns ErrTurn.
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
	s.cfg.Changed(ch.Kind, cur, next)
	return r, nil
}

// Refuses returns an error if a change is impossible, whatever its content.
func (s *Set) Refuses(ch Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return refuse(s.entry(ch.Kind, ch.Key), s.namespace(ch), ch)
}

func result(cur, next Entry) Result {
	if next.Object == nil {
		return Result{cur.Object, Absent}
	}
	return Result{next.Object, next.Phase()}
}

func (s *Set) decided(ch Change) (cur, next Entry, do effects, err error) {
	cur = s.entry(ch.Kind, ch.Key)
	next, do, err = decide(cur, s.namespace(ch), ch, time.Now())
	return cur, next, do, err
}

// namespace returns the phase of an object's namespace; Live for a kind without namespaces.
func (s *Set) namespace(ch Change) Phase {
	if ch.Key.Namespace == "" {
		return Live
	}
	return s.entry(s.cfg.Namespaces, Key{Name: ch.Key.Namespace}).Phase()
}

// save writes the file of an object, unless its content is the same already.
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

// stored converts an error of the store to an error for clients.
func (s *Set) stored(ch Change, file string, err error) error {
	if errors.Is(err, store.ErrConflict) {
		return apierrors.NewConflict(ch.resource(), ch.Key.Name, fmt.Errorf("its file %s was edited meanwhile; read the object again", file))
	}
	return err
}

// commit carries out a decision in memory. The caller holds s.mu.
func (s *Set) commit(ch Change, next Entry, do effects) Result {
	cur := s.entry(ch.Kind, ch.Key)
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

// sizeOf returns the approximate size of an object in memory, in bytes.
func sizeOf(o Object) int {
	size := 1 << 10
	if s, ok := o.(interface{ Size() int }); ok {
		size += 2 * s.Size()
	}
	return size
}

func (s *Set) put(ch Change, next Entry) {
	s.counted(ch.Key, next, 1)
	cur, was := s.all(ch.Kind).ReplaceOrInsert(located{ch.Key, next})
	if was {
		s.counted(ch.Key, cur.Entry, -1)
	}
	s.index(Ref{ch.Kind, ch.Key}, cur.Object, next.Object)
}

// drop removes an object, and returns its last state. If the object is a namespace, the objects
// in it that are only in memory are removed too.
func (s *Set) drop(ch Change, cur Entry) Object {
	s.all(ch.Kind).Delete(located{Key: ch.Key})
	s.counted(ch.Key, cur, -1)
	s.index(Ref{ch.Kind, ch.Key}, cur.Object, nil)
	s.revision++
	last := cur.Object.DeepCopyObject().(Object)
	last.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	s.window.add(Step{Revision: s.revision, Kind: ch.Kind, Before: last, size: cur.size})
	s.age()
	if ch.Kind == s.cfg.Namespaces {
		for k, t := range s.entries {
			within(t.Clone(), ch.Key.Name, func(at located) bool {
				if at.Origin == Fleeting {
					s.drop(Change{Kind: k, Key: at.Key}, at.Entry)
				}
				return true
			})
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

// index updates the index of owners after an object has changed from old to current.
func (s *Set) index(at Ref, old, current Object) {
	if old != nil {
		for _, r := range old.GetOwnerReferences() {
			delete(s.owned[r.UID], at)
			if len(s.owned[r.UID]) == 0 {
				delete(s.owned, r.UID)
			}
		}
	}
	if current != nil {
		for _, r := range current.GetOwnerReferences() {
			if s.owned[r.UID] == nil {
				s.owned[r.UID] = map[Ref]bool{}
			}
			s.owned[r.UID][at] = true
		}
	}
}
