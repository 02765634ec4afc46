package resources_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// show is what a dry run shows.
func (n *placementNode) show(r part.Request) (local.Fit, *part.Rejection) {
	n.t.Helper()
	r.DryRun = true
	res, no := n.p.Reserve(n.t.Context(), r)
	f := local.Fit{Fits: no == nil}
	res.(interface{ ShowFit(*local.Fit) }).ShowFit(&f)
	return f, no
}

// What a dry run shows is what becomes of the pod, and nothing is taken by it.
func TestDryRun(t *testing.T) {
	n := newNode(t)
	n.fit.TopologyPolicy = topology.NameRestricted
	reg := prometheus.NewRegistry()
	n.metrics = reg
	n.start()
	n.run(shares("web"))
	n.run(owns("a", "3"))
	n.host.Calls()
	p := newPlacementPod("b", sized("b", "2", "64Mi"), sized("log", "500m", "64Mi"))
	f, no := n.show(part.Request{Pod: p})
	want := local.FitHint{Nodes: "0", Preferred: true}
	if no != nil || len(f.Containers) != 2 || len(f.Steps) == 0 || !strings.HasPrefix(f.Steps[0], "container b: ") ||
		!reflect.DeepEqual(f.Containers[0], local.FitContainer{Name: "b", CPUs: "4-5", Own: true, Hint: want}) ||
		f.Containers[1].CPUs != "0,6-7" || f.Containers[1].Own {
		t.Errorf("%+v, %v", f, no)
	}
	f, no = n.show(part.Request{Pod: owns("c", "5")})
	if no == nil || no.Reason != topology.ReasonAffinity || len(f.Steps) == 0 || len(f.Containers) > 0 {
		t.Errorf("%+v, %v", f, no)
	}
	if calls := n.host.Calls(); len(calls) > 0 {
		t.Errorf("calls %v", calls)
	}
	n.run(p)
	n.wantCPUs(map[string]string{"web": "0,6-7", "a": "1-3", "b": "4-5", "log": "0,6-7"})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_topology_manager_admission_requests_total" && f.GetMetric()[0].GetCounter().GetValue() != 3 {
			t.Errorf("counts %v, want 3", f)
		}
	}
}

// gpus is a reservation of another part: one device on each of some NUMA nodes.
type gpus struct {
	free   numa.NodeSet
	asked  func() // whenever hints are
	fails  error
	chosen topology.Provider
}

func (g *gpus) Provider() topology.Provider      { return near{g, g.free} }
func (g *gpus) Align(chosen topology.Provider)   { g.chosen = chosen }
func (g *gpus) Commit(ctx context.Context) error { return ctx.Err() }
func (g *gpus) Release()                         {}
func (g *gpus) taken() numa.NodeSet              { return g.free &^ g.chosen.(near).free }
func (g *gpus) request(name string) part.Request {
	return part.Request{Pod: owns(name, "2"), Before: []part.Reservation{other{}, g}}
}

// near are the devices that are free.
type near struct {
	g    *gpus
	free numa.NodeSet
}

func (n near) Hints(int) []numa.Hints {
	if n.g.asked != nil {
		n.g.asked()
	}
	h := numa.Hints{Resource: "example.com/gpu"}
	for id := range n.free.All() {
		h.List = append(h.List, numa.Hint{Nodes: numa.Nodes(id), Preferred: true})
	}
	return []numa.Hints{h}
}

func (n near) Allocate(_ int, h numa.Hint) (topology.Provider, error) {
	n.free &^= h.Nodes
	return n, n.g.fails
}

// other is the reservation of a part that does not care for NUMA nodes.
type other struct{ part.Reservation }

func twoNodes(t *testing.T) *placementNode {
	n := newNode(t)
	n.fit.Machine = numa.Uniform(2, 1, 4, 1, 2<<30)
	n.fit.TopologyPolicy = topology.NameSingleNUMANode
	return n
}

// CPUs are near to the devices that the pod gets.
func TestPlacementAligned(t *testing.T) {
	n := twoNodes(t)
	n.start()
	g := &gpus{free: numa.Nodes(1)}
	r := g.request("a")
	f, no := n.show(r)
	if no != nil || f.Containers[0].CPUs != "4-5" || g.taken() != numa.Nodes(1) {
		t.Errorf("%+v, %v", f, no)
	}
	g.chosen = nil
	res, no := n.p.Reserve(t.Context(), r)
	if no != nil || g.taken() != numa.Nodes(1) {
		t.Fatal(no)
	}
	if got := n.p.CPUs().Exclusive(r.Pod.UID, "a").String(); got != "4-5" {
		t.Errorf("CPUs %s", got)
	}
	res.Release()
	if n.p.OwnCPUs(r.Pod) {
		t.Error("the pod has CPUs")
	}

	// What a provider says of its own failure is the verdict.
	g = &gpus{free: numa.Nodes(1), fails: &part.Rejection{Reason: "Broken", Message: "the plugin", Final: true}}
	if _, no := n.p.Reserve(t.Context(), g.request("a")); no == nil || no.Reason != "Broken" || !no.Final || g.chosen != nil {
		t.Errorf("rejection %+v", no)
	}
	g.fails = errors.New("no luck")
	if _, no := n.p.Reserve(t.Context(), g.request("a")); no == nil || no.Reason != topology.ReasonUnexpected || no.Message != "Allocate failed due to no luck, which is unexpected" {
		t.Errorf("rejection %+v", no)
	}
}

// While a provider is asked, others are given CPUs: they are not given twice.
func TestDecisionsMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		times int
		want  string // CPUs, or the reason why not
	}{
		"once":          {1, "6-7"},
		"until no room": {3, topology.ReasonAffinity},
	} {
		t.Run(name, func(t *testing.T) {
			n := twoNodes(t)
			n.start()
			g := &gpus{free: numa.Nodes(1)}
			times := 0
			g.asked = func() {
				if times++; times > c.times {
					return
				}
				first := &gpus{free: numa.Nodes(1)}
				if _, no := n.p.Reserve(t.Context(), first.request(string(rune('a'+times)))); no != nil && times == 1 {
					t.Error(no)
				}
			}
			r := g.request("pod")
			_, no := n.p.Reserve(t.Context(), r)
			got := n.p.CPUs().Exclusive(r.Pod.UID, "pod").String()
			if no != nil {
				got = no.Reason
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	// With decisions all the time the pod waits.
	n := twoNodes(t)
	n.start()
	g := &gpus{free: numa.Nodes(1)}
	g.asked = func() {
		if _, no := n.reserve(shares("web")); no != nil {
			t.Error(no)
		}
	}
	if _, no := n.p.Reserve(t.Context(), g.request("pod")); !no.Waits() {
		t.Errorf("rejection %+v", no)
	}
}

// A part that places nothing aligns what others reserve all the same.
func TestIdleAligns(t *testing.T) {
	p, err := resources.NewPlacement(resources.PlacementConfig{Fit: fit.PlacementConfig{Machine: numa.Uniform(2, 1, 4, 1, 2<<30), TopologyPolicy: topology.NameSingleNUMANode}})
	if err != nil || !p.Idle() {
		t.Fatal(err)
	}
	n := newNode(t)
	n.p, n.host = p, agenttest.NewHost(t)
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	g := &gpus{free: numa.Nodes(1)}
	if r, no := p.Reserve(t.Context(), g.request("a")); r == nil || no != nil || g.taken() != numa.Nodes(1) {
		t.Errorf("%v, %v", r, no)
	}
	if f, no := n.show(g.request("a")); no != nil || f.Containers[0].CPUs != "" || f.Containers[0].Hint.Nodes != "1" {
		t.Errorf("%+v, %v", f, no)
	}
}
