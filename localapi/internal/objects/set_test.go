package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/store"
)

// newSet is a Set over a store in memory.
func newSet() *Set {
	return New(Config{
		Namespaces: namespaces, Store: &store.Memory{}, New: func(Object) {}, Changed: func(Kind, Entry, Entry) {},
		Document: func(k Kind, o Object) (store.Document, error) {
			text, err := json.Marshal(o)
			return store.Document{Name: k.Type().Resource + "." + o.GetNamespace() + "." + o.GetName() + ".yaml", Object: text}, err
		},
	})
}

// history makes random changes, most of which make sense.
func history(t *testing.T, s *Set, r *rand.Rand) {
	t.Helper()
	turn, err := s.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer turn.End()
	ch := Change{Kind: configMaps, Key: Key{"ns", fmt.Sprint("o", r.IntN(4))}, Actor: Actor(r.IntN(4)), Verb: Verb(r.IntN(9)), Source: "manifests"}
	o := Object(&v1.ConfigMap{Data: map[string]string{"k": fmt.Sprint(r.IntN(3))}})
	switch r.IntN(4) {
	case 0:
		ch.Kind, o = pods, pod(func(p *v1.Pod) { p.Spec.NodeName = []string{"", "node"}[r.IntN(2)] })
	case 1:
		ch.Kind, o = events, &v1.Event{Reason: fmt.Sprint(r.IntN(3))}
	case 2:
		ch.Kind, ch.Key, o = namespaces, Key{Name: "ns"}, &v1.Namespace{}
	}
	if ch.Verb == Status && ch.Kind == configMaps || ch.Kind == events && ch.Verb == Status { // they have none
		return
	}
	if ch.Actor == File {
		ch.Read = FileState{Name: fmt.Sprint(ch.Kind.Type().Resource, ch.Key), At: fmt.Sprint(r.IntN(9)), Complete: true}
	}
	if ch.Verb == Replace && ch.Kind != pods {
		return
	}
	o.SetName(ch.Key.Name)
	o.SetNamespace(ch.Key.Namespace)
	o.SetUID(types.UID(fmt.Sprint(r.Uint64())))
	if r.IntN(3) == 0 {
		o.SetFinalizers([]string{"a/b"})
	}
	for i := range r.IntN(3) {
		o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{UID: types.UID(fmt.Sprint("owner", i))}))
	}
	ch.Object = o
	_, _ = turn.Apply(ch) // a refusal is as good as any other answer
}

// What the Set counts and finds is what it has, and what watchers are told leads from any revision to it.
func TestSet(t *testing.T) {
	for seed := range uint64(50) {
		s, r := newSet(), rand.New(rand.NewPCG(seed, 1))
		s.Begin(100)
		for range 200 {
			history(t, s, r)
		}
		count, owned, inside := 0, map[types.UID]map[Ref]bool{}, map[string]int{}
		for k, all := range s.entries {
			all.Ascend(func(at located) bool {
				name, e := at.Key, at.Entry
				count++
				if e.Phase() == Absent || KeyOf(e.Object) != name {
					t.Fatalf("seed %d: %v has %v", seed, name, e.Object)
				}
				if g := e.Object.GetDeletionGracePeriodSeconds(); e.Origin == Owned && e.Phase() == Ending && g != nil && *g == 0 && len(e.Object.GetFinalizers()) == 0 {
					t.Errorf("seed %d: %v waits for nobody and is there", seed, name)
				}
				if e.Origin == Owned && name.Namespace != "" {
					inside[name.Namespace]++
				}
				for _, o := range e.Object.GetOwnerReferences() {
					if owned[o.UID] == nil {
						owned[o.UID] = map[Ref]bool{}
					}
					owned[o.UID][Ref{k, name}] = true
				}
				return true
			})
		}
		if count != s.Count() || !maps.Equal(inside, s.within) || !maps.EqualFunc(owned, s.owned, maps.Equal) {
			t.Fatalf("seed %d: %d objects, %v, %v; want %d, %v, %v", seed, s.Count(), s.within, s.owned, count, inside, owned)
		}
		for _, k := range []Kind{pods, configMaps, events, namespaces} {
			told(t, s, k)
		}
		s.Close()
	}
}

// told checks that the steps after each revision lead from the objects at that one to those now.
func told(t *testing.T, s *Set, k Kind) {
	t.Helper()
	now, last, _ := s.At(k, 0)
	for revision := uint64(100); revision <= last; revision += 7 {
		before, _, ok := s.At(k, revision)
		steps := stepsSince(s, revision)
		if !ok {
			t.Fatalf("revision %d is forgotten", revision)
		}
		have := map[Key]Object{}
		for _, o := range before {
			have[KeyOf(o)] = o
		}
		at := revision
		for _, c := range steps {
			if c.Revision != at+1 {
				t.Fatalf("revision %d comes after %d", c.Revision, at)
			}
			at = c.Revision
			switch {
			case c.Kind != k:
			case c.Now == nil:
				delete(have, KeyOf(c.Before))
			default:
				have[KeyOf(c.Now)] = c.Now
			}
		}
		if len(have) != len(now) || slices.ContainsFunc(now, func(o Object) bool { return have[KeyOf(o)] != o }) {
			t.Fatalf("from revision %d: %v; want %v", revision, have, now)
		}
	}
}

// stepsSince returns all steps after a revision that is not forgotten.
func stepsSince(s *Set, revision uint64) (all []Step) {
	for {
		some, more, _ := s.Since(revision)
		all = append(all, some...)
		if more != nil {
			return all
		}
		revision = some[len(some)-1].Revision
	}
}

// The agent waits for who has the turn, and for one client at most, however many stand in line.
func TestTurnOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = time.Second
		s := newSet()
		turnOf := func(take func(context.Context) (*Turn, error)) time.Duration {
			began := time.Now()
			turn, err := take(t.Context())
			if err != nil {
				t.Error(err)
				return 0
			}
			waited := time.Since(began)
			time.Sleep(each)
			turn.End()
			return waited
		}
		var clients sync.WaitGroup
		for range 200 {
			clients.Go(func() { turnOf(s.ClientTurn) })
		}
		time.Sleep(each / 2)
		for range 10 {
			if waited := turnOf(s.Turn); waited > 2*each {
				t.Errorf("the agent waits for %v where a client has its turn for %v", waited, each)
			}
		}
		clients.Wait()
	})
}

// Who has a list of objects has it as it was, whatever becomes of the Set.
func TestAtIsOfOneMoment(t *testing.T) {
	s, r := newSet(), rand.New(rand.NewPCG(3, 1))
	s.Begin(100)
	for range 50 {
		history(t, s, r)
		for _, k := range []Kind{pods, configMaps, events} {
			tree := s.clone(k)
			var before []Key
			within(tree, "", func(at located) bool { before = append(before, at.Key); return true })
			for range 10 {
				history(t, s, r)
			}
			var after []Key
			within(tree, "", func(at located) bool { after = append(after, at.Key); return true })
			if !slices.Equal(before, after) || !slices.IsSortedFunc(before, Key.Compare) {
				t.Fatalf("a list has %v, and later %v", before, after)
			}
		}
	}
	s.Close()
}
