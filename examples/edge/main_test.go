package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
)

// server is the control plane. It serves HTTP, and is an http.RoundTripper for tests in a bubble.
type server struct{ handler atomic.Value }

// say sets the list that the server returns.
func (s *server) say(list string) {
	s.do(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
}

func (s *server) do(handler http.HandlerFunc) { s.handler.Store(handler) }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handler.Load().(http.HandlerFunc)(w, r)
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// listOf returns the list with the named pods, which run until they are stopped.
func listOf(image string, names ...string) string {
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"name": %q, "image": %q, "args": ["sleep", "forever"]}`, name, image))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// The node runs the last valid list, whatever the server answers, also after a restart.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := &server{}, t.TempDir()
		var a *agent.Agent
		start := func() *agenttest.Node {
			n := agenttest.New(t)
			n.Config.Sources = []podmgr.Source{&orders{
				url: "http://plant/orders", client: &http.Client{Timeout: 10 * time.Second, Transport: s},
				store: part.OpenVolatileStore(dir, nil), log: zap.NewNop(),
			}}
			a = n.Start()
			return n
		}
		want := func(when, running, problem string) {
			t.Helper()
			time.Sleep(3 * time.Minute) // longer than any pause
			synctest.Wait()
			var names []string
			for _, p := range a.Pods() {
				if agenttest.Ready(p) == nil {
					names = append(names, p.Name)
				}
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != running {
				t.Errorf("%s: pods %q, want %q", when, got, running)
			}
			var problems []string
			for _, p := range a.Problems() {
				problems = append(problems, p.Reason)
				if kept := running != ""; p.Kept != kept {
					t.Errorf("%s: problem has Kept %t, want %t", when, p.Kept, kept)
				}
			}
			if got := strings.Join(problems, "; "); !strings.Contains(got, problem) || (got == "") != (problem == "") {
				t.Errorf("%s: problem %q, want %q", when, got, problem)
			}
		}

		s.say("<html>log in")
		n := start()
		want("first answer is no list", "", "not a list of orders")
		s.say(listOf(agenttest.Image, "a", "b"))
		want("first list", "a b", "")
		for list, problem := range map[string]string{
			``:                                     "not a list of orders",
			`null`:                                 "not a list of orders: null",
			`{}`:                                   "not a list of orders",
			`[] []`:                                "not a list of orders",
			`[{"name": "a", "imgae": "i"}]`:        `unknown field "[0].imgae"`,
			`[{"name": "../a", "image": "i"}]`:     "order 1: metadata.name",
			`[{"name": "a", "image": " "}]`:        "order 1: spec.containers[0].image",
			"[" + strings.Repeat(" ", 1<<20) + "]": "too large",
		} {
			s.say(list)
			want(list[:min(len(list), 40)], "a b", problem)
		}
		s.do(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "[]", http.StatusInternalServerError) })
		want("server fails", "a b", "status 500")
		s.do(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		want("server hangs", "a b", "deadline exceeded")
		if got := len(n.Runtime.Calls("CreateContainer")); got != 2 {
			t.Errorf("%d containers created for 2 pods", got)
		}
		n.Stop()

		n = start() // another machine with the same disk
		want("restart without a network", "a b", "deadline exceeded")
		s.say(listOf(agenttest.Image, "b", "c"))
		want("other list", "b c", "")
		s.say(strings.ReplaceAll(listOf(agenttest.Image, "b", "c"), "forever", "1h"))
		want("changed orders", "b c", "")
		if got := len(n.Runtime.Calls("CreateContainer")); got != 5 {
			t.Errorf("%d containers created, want 5: a, b, c, and both changed pods", got)
		}
		s.say("[]")
		want("empty list", "", "")
		if got := len(a.Pods()); got != 0 {
			t.Errorf("%d pods are left", got)
		}
		n.Stop()
	})
}
