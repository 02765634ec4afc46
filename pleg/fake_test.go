package pleg_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/pleg"
)

// fake is a container runtime in memory that fails, hangs and stays silent on
// demand.
type fake struct {
	mu       sync.Mutex
	pods     map[types.UID]*observed.Pod
	lists    int
	inspects map[types.UID]int
	inFlight int
	most     int // of inspections at a time

	listErr    error
	listHangs  bool
	inspectErr map[types.UID]error
	hangs      map[types.UID]bool
	deaf       map[types.UID]bool          // hangs and does not obey its context
	slow       time.Duration               // of each inspection
	slowOf     map[types.UID]time.Duration // of each inspection of a pod, in addition
	slowList   time.Duration               // of each list
	blinks     bool                        // every second inspection shows nothing
	hides      bool                        // lists show no containers

	stream  bool // there is an event stream
	refuse  bool // it does not open
	on      func(observed.Event)
	broken  chan struct{} // ends the open stream
	opened  []time.Time   // tries included
	release chan struct{} // ends what is deaf
}

func newFake(stream bool) *fake {
	return &fake{
		pods: map[types.UID]*observed.Pod{}, inspects: map[types.UID]int{}, inspectErr: map[types.UID]error{},
		hangs: map[types.UID]bool{}, deaf: map[types.UID]bool{}, stream: stream, release: make(chan struct{}),
	}
}

func (f *fake) List(ctx context.Context) ([]observed.Listed, error) {
	f.mu.Lock()
	slow := f.slowList
	defer func() { time.Sleep(slow) }()
	f.lists++
	if f.listHangs {
		f.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer f.mu.Unlock()
	if f.listErr != nil {
		return nil, f.listErr
	}
	var out []observed.Listed
	for _, p := range f.pods {
		l := observed.Listed{UID: p.UID, Name: p.Name, Namespace: p.Namespace}
		for _, s := range p.Sandboxes {
			l.Sandboxes = append(l.Sandboxes, observed.Item{ID: s.ID, State: s.State})
		}
		for _, c := range p.Containers {
			if !f.hides {
				l.Containers = append(l.Containers, observed.Item{ID: c.ID, State: c.State})
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func (f *fake) Inspect(ctx context.Context, uid types.UID) (*observed.Pod, error) {
	f.mu.Lock()
	f.inspects[uid]++
	f.inFlight++
	f.most = max(f.most, f.inFlight)
	hangs, deaf, slow := f.hangs[uid], f.deaf[uid], f.slow+f.slowOf[uid]
	p := &observed.Pod{UID: uid, ObservedAt: time.Now()}
	if known := f.pods[uid]; known != nil && !(f.blinks && f.inspects[uid]%2 == 0) {
		c := *known
		c.ObservedAt = p.ObservedAt
		c.Containers, c.Sandboxes = slices.Clone(c.Containers), slices.Clone(c.Sandboxes)
		p = &c
	}
	err := f.inspectErr[uid]
	f.mu.Unlock()
	defer f.do(func() { f.inFlight-- })
	if deaf {
		<-f.release
		return nil, errors.New("late")
	}
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(slow)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (f *fake) Events(ctx context.Context, ready func(), on func(observed.Event)) error {
	f.mu.Lock()
	if !f.stream {
		f.mu.Unlock()
		return observed.ErrNoEventStream
	}
	f.opened = append(f.opened, time.Now())
	if f.refuse {
		f.mu.Unlock()
		return errors.New("stream refused")
	}
	broken := make(chan struct{})
	f.on, f.broken = on, broken
	f.mu.Unlock()
	ready()
	defer f.do(func() { f.on = nil })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-broken:
		return errors.New("stream broken")
	}
}

func (f *fake) do(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// set makes a pod: with one sandbox named uid+"-s", and containers by id.
func (f *fake) set(uid types.UID, sandbox observed.State, containers ...observed.Container) {
	f.do(func() {
		p := &observed.Pod{UID: uid, Name: "name-" + string(uid), Namespace: "ns", Containers: containers}
		p.Sandboxes = []observed.Sandbox{{ID: string(uid) + "-s", State: sandbox}}
		if sandbox == observed.Running {
			p.Sandboxes[0].IPs = []string{"10.0.0.1"}
		}
		f.pods[uid] = p
	})
}

// tell sends an event as if it happened now.
func (f *fake) tell(uid types.UID) { f.tellAt(uid, time.Now()) }

func (f *fake) tellAt(uid types.UID, at time.Time) {
	f.mu.Lock()
	on := f.on
	f.mu.Unlock()
	if on != nil {
		on(observed.Event{UID: uid, Kind: observed.ContainerStarted, At: at})
	}
}

func (f *fake) calls(uid types.UID) (lists, inspects int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists, f.inspects[uid]
}

func box(id string, s observed.State) observed.Container { return observed.Container{ID: id, State: s} }

// start runs a manager in the bubble and waits for its first relist.
func start(t *testing.T, cfg pleg.Config) *pleg.Manager {
	t.Helper()
	m, err := pleg.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	synctest.Wait()
	return m
}

// drain takes every event that is there.
func drain(m *pleg.Manager) map[types.UID][]pleg.Change {
	got := map[types.UID][]pleg.Change{}
	for {
		synctest.Wait()
		select {
		case ev := <-m.Events():
			got[ev.UID] = append(got[ev.UID], ev.Changes...)
		default:
			return got
		}
	}
}

// wantChanges compares IDs and types without regard to order.
func wantChanges(t *testing.T, what string, got []pleg.Change, want ...pleg.Change) {
	t.Helper()
	for i := range got {
		got[i] = pleg.Change{ID: got[i].ID, Type: got[i].Type, Sandbox: got[i].Sandbox}
	}
	for _, list := range [][]pleg.Change{got, want} {
		slices.SortStableFunc(list, func(a, b pleg.Change) int {
			switch {
			case a.ID < b.ID:
				return -1
			case a.ID > b.ID:
				return 1
			}
			return 0
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: changes = %v, want %v", what, got, want)
	}
}

// seen is the pod and the error of a view.
func seen(m *pleg.Manager, uid types.UID) (*observed.Pod, error) {
	v := m.View(uid)
	return v.Pod, v.Err
}
