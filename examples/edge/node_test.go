package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/critest"
)

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A pod with a licence, from its order to its end.
func TestLifeOfALicence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.order(app("press", "vision"), app("gauge", ""))
		n := startNode(t, p, newRuntime(), t.TempDir())
		defer n.stop()
		after(time.Minute)
		if got := n.running(); got != "gauge press" {
			t.Errorf("running: %s", got)
		}
		if got := p.asked(); got != "PUT default/press vision" {
			t.Errorf("the licence server was asked %q", got)
		}
		if got := n.said("press"); !strings.Contains(got, `Normal LicenceGranted: Licence "vision" granted`) {
			t.Errorf("events: %s", got)
		}
		after(time.Hour)
		if got := p.asked(); got != "" {
			t.Errorf("with the licence held, the server was asked %q", got)
		}
		p.order(app("gauge", ""))
		after(2 * time.Minute)
		if got := p.asked(); got != "DELETE" || p.outstanding() != 0 {
			t.Errorf("when the pod was gone, the server was asked %q; %d outstanding", got, p.outstanding())
		}
		p.order(app("press", "vision"), app("gauge", ""))
		after(2 * time.Minute)
		if got := p.asked(); got != "PUT default/press vision" || n.running() != "gauge press" {
			t.Errorf("ordered again: asked %q, running %s", got, n.running())
		}
	})
}

// Pods that want a licence wait for a server that is not well; others do not.
func TestServerNotWell(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		why    string
	}{
		"hangs":     {hangs, `licence "vision": the server did not answer within 10s`},
		"fails":     {fails, `licence "vision": the server answered 500: no seat is [31mfree`},
		"floods":    {floods, `licence "vision": the answer is larger than 1048576 bytes`},
		"anybody":   {isAnybody, `licence "vision": the server answered without a grant`},
		"redirects": {redirects, `licence "vision": the server answered 302`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testNotWell(t, tc.answer, tc.why) })
		})
	}
}

func testNotWell(t *testing.T, answer http.HandlerFunc, why string) {
	p := newPlant()
	p.licences(answer)
	var list []order
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} { // more than start at the same time
		list = append(list, app(name, "vision"))
	}
	p.order(append(list, app("free", ""))...)
	n := startNode(t, p, newRuntime(), t.TempDir())
	defer n.stop()
	after(25 * time.Second)
	if got := n.running(); got != "free" {
		t.Errorf("running: %q", got)
	}
	if got := n.Why(n.pod("a")); got.LastError != why || n.pod("a").Status.Phase != v1.PodPending {
		t.Errorf("why: %+v, want %q", got, why)
	}
	said := n.said("a")
	if strings.Count(said, "NoLicence") != 1 || !strings.Contains(said, "Warning NoLicence: Pod waits for "+why) {
		t.Errorf("events: %s", said)
	}
	if len(n.rt.Calls("RunPodSandbox")) != 1 {
		t.Error("a pod without a licence has a sandbox")
	}
	p.licences(nil)
	after(20 * time.Second)
	if got := strings.Fields(n.running()); len(got) != 7 {
		t.Errorf("running when the server was well: %v", got)
	}
	p.licences(answer)
	p.order()
	after(3 * time.Minute)
	if p.outstanding() != 6 || len(n.Pods()) != 0 {
		t.Errorf("%d outstanding, %d pods", p.outstanding(), len(n.Pods()))
	}
	p.licences(nil)
	after(2 * time.Minute)
	if p.outstanding() != 0 {
		t.Errorf("%d licences were not returned", p.outstanding())
	}
}

// An agent that ends does not wait for a licence server.
func TestStopWhileServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.order(app("a", "vision"), app("b", "vision"))
		n := startNode(t, p, newRuntime(), t.TempDir())
		after(time.Minute)
		p.licences(hangs)
		p.order(app("c", "vision")) // two to return, one to get
		after(15 * time.Second)
		begin := time.Now()
		n.stop()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

// A pod whose order changes gets the licence of the one before it, on a server
// that has one seat.
func TestOneSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.licences(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && p.outstanding() > 0 {
				http.Error(w, "no seat is free", http.StatusConflict)
				return
			}
			p.serveLicence(w, r)
		})
		p.order(app("press", "vision"))
		n := startNode(t, p, newRuntime(), t.TempDir())
		defer n.stop()
		after(time.Minute)
		changed := app("press", "vision")
		changed.Args = []string{"out", "new", "sleep", "forever"}
		p.order(changed)
		after(3 * time.Minute)
		if n.running() != "press" || n.pod("press").UID != changed.uid() || p.outstanding() != 1 {
			t.Errorf("running %q, %d licences, %s", n.running(), p.outstanding(), p.asked())
		}
	})
}

// Licences over the lives of an agent.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, root := newPlant(), newRuntime(), t.TempDir()
		p.order(app("press", "vision"), app("gauge", "sound"))
		n := startNode(t, p, rt, root)
		after(time.Minute)
		before, said := creations(rt), n.said("press")
		n.stop()
		p.asked()

		p.licences(fails) // who holds a licence needs no server
		n = startNode(t, p, rt, root)
		after(5 * time.Minute)
		if n.running() != "gauge press" || !slices.Equal(creations(rt), before) {
			t.Errorf("running %q, created %v, before %v", n.running(), creations(rt), before)
		}
		if got := n.said("press"); got != said {
			t.Errorf("events: %s\nbefore the restart: %s", got, said)
		}
		n.stop()

		p.licences(nil)
		p.order(app("gauge", "sound")) // while the agent is away
		n = startNode(t, p, rt, root)
		after(5 * time.Minute)
		if got := p.asked(); got != "DELETE" || n.running() != "gauge" {
			t.Errorf("asked %q, running %q", got, n.running())
		}
		n.stop()
	})
}

func creations(rt *critest.Runtime) (ids []string) {
	for _, c := range rt.Calls("CreateContainer") {
		ids = append(ids, c.Target)
	}
	return ids
}

// A node that starts without its uplink runs what it was ordered to last.
func TestNoUplink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, root := newPlant(), t.TempDir()
		p.order(app("gauge", ""))
		n := startNode(t, p, newRuntime(), root)
		after(time.Minute)
		n.stop()
		p.say("<html>no route")
		n = startNode(t, p, newRuntime(), root) // the machine was started anew
		after(time.Minute)
		if got := n.running(); got != "gauge" {
			t.Errorf("running: %q", got)
		}
		if got := n.Problems(); len(got) != 1 || !got[0].Kept || !strings.Contains(got[0].Reason, "not a list of orders") {
			t.Errorf("problems: %+v", got)
		}
		p.order()
		after(time.Minute)
		if len(n.Pods()) != 0 || len(n.Problems()) != 0 {
			t.Errorf("pods %v, problems %v", n.running(), n.Problems())
		}
		n.stop()
	})
}
