package main

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
)

// desk is the part alone, on a host in memory.
type desk struct {
	*licences
	*plant
	host  *agenttest.Host
	store part.Store
	pod   *v1.Pod
}

func newDesk(t *testing.T, store part.Store) *desk {
	t.Helper()
	d := &desk{plant: newPlant(), host: agenttest.NewHost(t), store: store, pod: app("press", "vision").pod()}
	d.host.SetPods(d.pod)
	d.begin(t)
	return d
}

// begin is a process of the agent.
func (d *desk) begin(t *testing.T) {
	t.Helper()
	d.licences = partOf(t, d.plant, d.store)
	if err := d.Join(d.host); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) prepare() error { return d.Prepare(context.Background(), d.pod, nil) }
func (d *desk) gone() error    { return d.Gone(context.Background(), part.RefOf(d.pod)) }

func nobody(types.UID) bool { return false }

// A licence that may have been granted to an agent that was killed before it knew
// is returned, or asked for again, but never lost.
func TestKilledInBetween(t *testing.T) {
	for name, tc := range map[string]struct {
		killedAt string // before the record says so
		wanted   bool
		asked    string
	}{
		"while asking, wanted":        {asked, true, "PUT default/press vision"},
		"while asking, not wanted":    {asked, false, "DELETE"},
		"with the licence, wanted":    {held, true, ""},
		"with the licence, withdrawn": {held, false, "DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			store := part.OpenVolatileStore(t.TempDir(), nil)
			d := newDesk(t, store)
			if err := store.Write(string(d.pod.UID), []byte(tc.killedAt)); err != nil {
				t.Fatal(err)
			}
			var err error
			if tc.wanted {
				err = d.prepare()
			} else {
				err = d.Sweep(t.Context(), nobody)
			}
			keys, _ := store.Keys()
			if got := d.asked(); err != nil || got != tc.asked || (len(keys) == 1) != tc.wanted {
				t.Errorf("%v; asked %q, want %q; records %v", err, got, tc.asked, keys)
			}
		})
	}
}

// Pods without a licence cost nothing, and one that is held is in memory.
func TestPrepareAsksOnce(t *testing.T) {
	d := newDesk(t, part.OpenVolatileStore(t.TempDir(), nil))
	if err := d.Prepare(t.Context(), app("gauge", "").pod(), nil); err != nil {
		t.Error(err)
	}
	for range 3 {
		if err := d.prepare(); err != nil {
			t.Error(err)
		}
	}
	if got := d.asked(); got != "PUT default/press vision" {
		t.Errorf("asked %q", got)
	}
	if got := d.host.Calls(); !slices.Equal(got, []string{`event default/press Normal LicenceGranted: Licence "vision" granted`}) {
		t.Errorf("calls %q", got)
	}
}

// A pod that came back keeps its licence.
func TestGoneButBack(t *testing.T) {
	d := newDesk(t, part.OpenVolatileStore(t.TempDir(), nil))
	if err := errors.Join(d.prepare(), d.gone(), d.prepare()); err != nil {
		t.Error(err)
	}
	if got := d.asked(); got != "PUT default/press vision" {
		t.Errorf("asked %q", got)
	}
	d.host.SetPods()
	if err := errors.Join(d.gone(), d.gone()); err != nil {
		t.Error(err)
	}
	if got := d.asked(); got != "DELETE" {
		t.Errorf("asked %q", got)
	}
}

// A pod that is ordered again while its licence is being returned waits for that
// and asks for a new one.
func TestOrderedWhileReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, part.OpenVolatileStore(t.TempDir(), nil))
		if err := d.prepare(); err != nil {
			t.Fatal(err)
		}
		goOn := make(chan struct{})
		d.plant.licences(func(w http.ResponseWriter, r *http.Request) {
			<-goOn
			d.serveLicence(w, r)
		})
		d.host.SetPods()
		returned, granted := make(chan error, 1), make(chan error, 1)
		go func() { returned <- d.gone() }()
		synctest.Wait()
		d.host.SetPods(d.pod)
		go func() { granted <- d.prepare() }()
		synctest.Wait()
		close(goOn)
		if err := errors.Join(<-returned, <-granted); err != nil {
			t.Error(err)
		}
		if got := d.asked(); got != "PUT default/press vision, DELETE, PUT default/press vision" || d.outstanding() != 1 {
			t.Errorf("asked %q, %d outstanding", got, d.outstanding())
		}
	})
}

// Many licences to return do not each wait for a server that hangs, and a pod
// that is withdrawn does not wait for it.
func TestHungServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := part.OpenVolatileStore(t.TempDir(), nil)
		d := newDesk(t, store)
		d.plant.licences(hangs)
		for _, uid := range []string{"a", "b", "c", "d"} {
			if err := store.Write(uid, []byte(held)); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		err := d.Sweep(t.Context(), nobody)
		if took := time.Since(begin); err == nil || took != returnTimeout {
			t.Errorf("the sweep took %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Prepare(ctx, d.pod, nil); !errors.Is(err, context.DeadlineExceeded) || d.Explain(d.pod) != "" {
			t.Errorf("withdrawn: %v, %q", err, d.Explain(d.pod))
		}
		if err := d.prepare(); err == nil || !strings.Contains(d.Explain(d.pod), "did not answer") {
			t.Errorf("%v, %q", err, d.Explain(d.pod))
		}
		d.plant.licences(nil)
		after(returnPause)
		if err := d.Sweep(t.Context(), func(uid types.UID) bool { return uid == d.pod.UID }); err != nil {
			t.Error(err)
		}
		if keys, _ := store.Keys(); !slices.Equal(keys, []string{string(d.pod.UID)}) {
			t.Errorf("records %v", keys)
		}
	})
}

// Nothing is asked of the server that cannot be written down.
func TestFullDisk(t *testing.T) {
	d := newDesk(t, noRecords{brokenStore{}})
	if err := d.prepare(); !errors.Is(err, errDisk) || d.asked() != "" {
		t.Error(err)
	}
	if err := d.Sweep(t.Context(), nobody); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

type noRecords struct{ brokenStore }

func (noRecords) Read(string) ([]byte, error) { return nil, fs.ErrNotExist }

// A disk that hangs holds up the pods that want a licence, one at a time each.
func TestHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &agenttest.HungStore{}
		d := newDesk(t, disk)
		first := make(chan error, 1)
		go func() { first <- d.prepare() }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Prepare(ctx, d.pod, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := d.Prepare(t.Context(), app("gauge", "").pod(), nil); err != nil {
			t.Error(err)
		}
		disk.Release()
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}
