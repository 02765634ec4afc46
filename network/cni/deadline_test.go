package cni

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/network"
)

// A call that returns neither at its deadline nor when its process is killed,
// as one into a file system whose server is dead.
func TestACallThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false)
		r.install("main")
		r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		k := r.mustUp(pod("a"))
		free := make(chan struct{})
		r.p.processes = inMemory{state: r.state, first: func(context.Context, command) (*output, error) {
			<-free
			return nil, nil
		}}
		begun := time.Now()
		_, err := r.p.SetUp(t.Context(), pod("b"), someNetns, k.Saved, nil)
		wantCode(t, err, network.DeadlineExceeded, `network "net": ADD did not end at its deadline, and goes on`)
		if d := time.Since(begun); d != 2*time.Minute+grace {
			t.Errorf("it took %v", d)
		}
		begun = time.Now()
		wantCode(t, r.p.TearDown(t.Context(), pod("b"), someNetns, k.Saved, nil), network.DeadlineExceeded, "DEL: wait for an earlier call")
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("it took %v", d)
		}
		begun = time.Now()
		wantCode(t, r.p.Check(t.Context(), k, nil), network.DeadlineExceeded, "CHECK did not end")
		if d := time.Since(begun); d != 30*time.Second+grace {
			t.Errorf("it took %v", d)
		}
		begun = time.Now()
		wantCode(t, r.p.Collect(t.Context(), nil), network.DeadlineExceeded, "GC: wait for an earlier call")
		if d := time.Since(begun); d != 2*time.Minute {
			t.Errorf("it took %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		_, err = r.p.SetUp(ctx, pod("c"), someNetns, k.Saved, nil)
		wantCode(t, err, network.DeadlineExceeded, "goes on")
		if d := time.Since(begun); d != time.Second+grace {
			t.Errorf("with a caller's deadline of 1 s it took %v", d)
		}
		close(free)
		synctest.Wait()
		for _, id := range []string{"b", "c"} {
			if err := r.p.TearDown(t.Context(), pod(id), someNetns, k.Saved, nil); err != nil {
				t.Error(err)
			}
		}
		if err := r.p.Collect(t.Context(), []network.Kept{k}); err != nil {
			t.Error(err)
		}
	})
}

func TestPluginsThatHangAreNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false)
		r.install("main")
		r.write("10.conflist", oneConf("net", "1.1.0", `{"type":"main"}`))
		r.acts("main", map[string]act{"STATUS": {Hang: true}})
		begun := time.Now()
		_, err := r.p.Plan(t.Context(), pod("a"))
		wantCode(t, err, network.Unavailable, "plugin main: STATUS: killed at the deadline")
		if d := time.Since(begun); d != 10*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

func TestDirectoriesThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false)
		r.install("main")
		r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		free := make(chan struct{})
		r.p.dir.versions.ask = func(context.Context, string) ([]string, error) {
			<-free
			return []string{"1.0.0"}, nil
		}
		begun := time.Now()
		if err := r.p.Recovered(t.Context(), nil); err != nil || time.Since(begun) != firstTimeout {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		for range 3 {
			if _, ok := r.p.load(t.Context()); ok {
				t.Error("loaded")
			}
			wantCode(t, r.p.Status(), network.Unavailable, r.conf+" and the directories of the plugins could not be read within 1m0s")
		}
		if n := r.p.loads.InFlight(); n != 1 {
			t.Errorf("%d loads are under way", n)
		}
		close(free)
		synctest.Wait()
		if err := r.p.Status(); err != nil {
			t.Error(err)
		}
	})
}
