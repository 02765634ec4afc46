package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmgr"
)

// plant is the order server and the licence server, for tests. It serves HTTP,
// and is a http.RoundTripper for those in a bubble.
type plant struct {
	mu      sync.Mutex
	list    string // what is ordered
	version int
	answer  http.HandlerFunc // in place of the licence server
	granted map[string]bool
	calls   []string // of the licence server: "PUT UID product"
}

func newPlant() *plant { return &plant{list: "[]", granted: map[string]bool{}} }

// order changes what is ordered.
func (p *plant) order(list ...order) {
	b, _ := json.Marshal(append([]order{}, list...))
	p.say(string(b))
}

func (p *plant) say(list string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = list
	p.version++
}

// licences has answer stand in for the licence server; nil ends that.
func (p *plant) licences(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *plant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	switch {
	case r.URL.Path == "/orders":
		p.serveOrders(w, r)
	case answer != nil:
		answer(w, r)
	default:
		p.serveLicence(w, r)
	}
}

func (p *plant) serveOrders(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	etag := fmt.Sprintf(`"%d"`, p.version)
	if r.Header.Get("If-None-Match") == etag && r.Header.Get("Prefer") == "wait=60" {
		w.WriteHeader(http.StatusNotModified) // it may wait, and need not
		return
	}
	w.Header().Set("ETag", etag)
	_, _ = io.WriteString(w, p.list)
}

func (p *plant) serveLicence(w http.ResponseWriter, r *http.Request) {
	var asks struct{ Product, Pod string }
	if r.Method == http.MethodPut && json.NewDecoder(r.Body).Decode(&asks) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	id := strings.TrimPrefix(r.URL.Path, "/licences/")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, strings.TrimSpace(r.Method+" "+asks.Pod+" "+asks.Product))
	if r.Method == http.MethodDelete {
		delete(p.granted, id)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	p.granted[id] = true
	_ = json.NewEncoder(w).Encode(map[string]string{"granted": id})
}

// asked returns what the licence server was asked since the last time.
func (p *plant) asked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return strings.Join(calls, ", ")
}

// outstanding is how many licences are granted.
func (p *plant) outstanding() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.granted)
}

// RoundTrip implements http.RoundTripper. A body that is larger than anybody
// should read has no end.
func (p *plant) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	p.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := w.Result()
	if resp.Header.Get("Endless") != "" {
		resp.Body = io.NopCloser(endless{})
	}
	return resp, nil
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, strings.Repeat("x", len(b))), nil }

// Answers of a server that is not well.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func fails(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "no seat is \x1b[31mfree\x00\nat all", http.StatusInternalServerError)
}

func floods(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Endless", "1") }

func isAnybody(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in") }

func redirects(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/login", http.StatusFound)
}

// plantNode is an agent over a runtime in memory, fed by a plant.
type plantNode struct {
	*agent.Agent
	t      *testing.T
	rt     *critest.Runtime
	cancel context.CancelFunc
	ended  chan error
}

const testImage = "localhost/app:1"

func newRuntime() *critest.Runtime {
	rt := critest.New()
	rt.AddImage(testImage)
	return rt
}

// sourceOf and partOf are what main makes, without the network.
func sourceOf(t *testing.T, p http.RoundTripper, root string) *orders {
	t.Helper()
	s, err := newOrders("http://plant/orders", part.OpenVolatileStore(filepath.Join(root, "orders"), nil), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s.client.Transport = p
	return s
}

func partOf(t *testing.T, p http.RoundTripper, store part.Store) *licences {
	t.Helper()
	l, err := newLicences("http://plant", store)
	if err != nil {
		t.Fatal(err)
	}
	l.server.client.Transport = p
	return l
}

func startNode(t *testing.T, p *plant, rt *critest.Runtime, root string) *plantNode {
	t.Helper()
	a, err := agent.New(agent.Config{
		Node: node.Machine{Name: "edge-7", Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("20"),
		}},
		Paths:   agent.Paths{Root: root, PodLogs: filepath.Join(root, "logs"), ContainerLogs: "-"},
		Runtime: rt, Images: agent.Images{Service: rt}, DNS: agent.DNS{ResolvConf: "-"},
		Sources: []podmgr.Source{sourceOf(t, p, root)},
		Parts:   []part.Part{partOf(t, p, part.OpenVolatileStore(filepath.Join(root, "licences"), nil))},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := &plantNode{Agent: a, t: t, rt: rt, cancel: cancel, ended: make(chan error, 1)}
	go func() { n.ended <- a.Run(ctx) }()
	synctest.Wait()
	return n
}

func (n *plantNode) stop() {
	n.t.Helper()
	n.cancel()
	if err := <-n.ended; err != nil {
		n.t.Errorf("Run: %v", err)
	}
}

// running are the pods with a container that runs.
func (n *plantNode) running() string {
	var names []string
	for _, p := range n.Pods() {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil {
				names = append(names, p.Name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// said are the reasons and messages of a pod's events.
func (n *plantNode) said(name string) string {
	var b strings.Builder
	for _, p := range n.Pods() {
		if p.Name == name {
			for _, e := range n.Events(p) {
				fmt.Fprintf(&b, "%s %s: %s\n", e.Type, e.Reason, e.Message)
			}
		}
	}
	return b.String()
}

func (n *plantNode) pod(name string) *v1.Pod {
	n.t.Helper()
	for _, p := range n.Pods() {
		if p.Name == name {
			return p
		}
	}
	n.t.Fatalf("there is no pod %s", name)
	return nil
}

func app(name, licence string) order {
	return order{Name: name, Image: testImage, Args: []string{"sleep", "forever"}, Licence: licence}
}
