package kubeapi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/node/status"
)

// says is a status that a test changes.
type says struct {
	changes  chan struct{}
	mu       sync.Mutex
	problem  string
	once     []status.Event // told until reported
	fills    int
	note     string
	capacity v1.ResourceList
	unknown  error
}

func newSays() *says {
	return &says{changes: make(chan struct{}, 1), capacity: v1.ResourceList{"cpu": resource.MustParse("2")}}
}

func (s *says) set(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

func (s *says) Changes() <-chan struct{} { return s.changes }
func (s *says) Reported()                { s.mu.Lock(); s.once = nil; s.mu.Unlock() }

func (s *says) Fill(n *v1.Node) ([]status.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fills++
	n.Status.Capacity = s.capacity
	if s.note != "" {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[status.AnnotationProvidedIP] = s.note
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	want := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}
	if s.problem != "" {
		want.Status, want.Message = v1.ConditionFalse, s.problem
	}
	events := slices.Clone(s.once)
	for i, c := range n.Status.Conditions {
		if c.Type != v1.NodeReady {
			continue
		}
		if c.Status == want.Status {
			want.LastTransitionTime = c.LastTransitionTime
		} else {
			events = append(events, status.Event{Reason: "Ready=" + string(want.Status)})
		}
		n.Status.Conditions[i] = want
		return events, s.unknown
	}
	n.Status.Conditions = append(n.Status.Conditions, want)
	return events, s.unknown
}

// nodeRig is a node and its API server.
type nodeRig struct {
	*testing.T
	srv  *kubeapitest.Server
	says *says
	m    *kubeapi.NodeManager
	stop func()

	mu      sync.Mutex
	events  []string
	changed []string // versions; "gone"
}

func nodeStart(t *testing.T, srv *kubeapitest.Server, s *says, change func(*kubeapi.NodeConfig)) *nodeRig {
	t.Helper()
	r := &nodeRig{T: t, srv: srv, says: s}
	api, err := kubeapi.HeartbeatClient(srv.Config(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := kubeapi.NodeConfig{
		Name: "edge-1", API: api, Status: s, Register: true,
		Event: func(e status.Event) { r.mu.Lock(); r.events = append(r.events, e.Reason); r.mu.Unlock() },
		Changed: func(n *v1.Node) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if n == nil {
				r.changed = append(r.changed, "gone")
				return
			}
			r.changed = append(r.changed, n.ResourceVersion)
		},
	}
	if change != nil {
		change(&cfg)
	}
	if r.m, err = kubeapi.NewNodeManager(cfg); err != nil {
		t.Fatal(err)
	}
	if err := r.m.Restore(); err != nil {
		t.Error(err)
	}
	s.set(func() {})
	r.stop = testrun.Start(t, r.m.Run)
	return r
}

func (r *nodeRig) node() *v1.Node {
	r.Helper()
	n, _ := r.srv.Get(&v1.Node{}, "", "edge-1").(*v1.Node)
	return n
}

func ready(n *v1.Node) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{}
}

func (r *nodeRig) told() string { r.mu.Lock(); defer r.mu.Unlock(); return strings.Join(r.events, " ") }

func TestNewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := nodeStart(t, kubeapitest.New(), newSays(), func(c *kubeapi.NodeConfig) {
			c.Labels = map[string]string{"site": "north", v1.LabelHostname: "other"}
			c.Taints = []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoExecute}}
			c.ExternalProvider, c.ControllerAttach, c.ProviderID = true, true, "p://1"
			c.Metrics = reg
			c.Started, c.Booted = time.Now().Add(-3*time.Second), time.Now().Add(-10*time.Second)
		})
		time.Sleep(time.Second)
		n := r.node()
		if n == nil {
			t.Fatal("not registered")
		}
		if n.Labels["site"] != "north" || n.Labels[v1.LabelHostname] != "other" || n.Labels[v1.LabelOSStable] == "" || n.Labels["beta.kubernetes.io/arch"] == "" {
			t.Errorf("labels %v", n.Labels)
		}
		if len(n.Spec.Taints) != 2 || n.Spec.Taints[1].Key != kubeapi.TaintUninitialized || n.Spec.Taints[1].Value != "true" || n.Spec.ProviderID != "p://1" || n.Spec.Unschedulable {
			t.Errorf("spec %+v", n.Spec)
		}
		if n.Annotations[kubeapi.AnnotationAttach] != "true" || ready(n).Status != v1.ConditionTrue {
			t.Errorf("%+v", n)
		}
		if got := r.srv.Count("get", kubeapi.Nodes); got != 0 {
			t.Errorf("%d reads", got)
		}
		if have, live := r.m.Node(); have == nil || !live || r.m.UID() != n.UID {
			t.Errorf("knows %v, %t", have, live)
		}
		if want, have := "kubelet_node_name{node=\"edge-1\"} 1", metricsText(t, reg); !strings.Contains(have, want) || !strings.Contains(have, "kubelet_node_startup_pre_kubelet_duration_seconds 7") || !strings.Contains(have, "kubelet_node_startup_duration_seconds 10") {
			t.Errorf("metrics:\n%s", have)
		}
		if r.told() != "Starting" {
			t.Errorf("events %q", r.told())
		}
	})
}

func metricsText(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range all {
		for _, m := range f.Metric {
			text.WriteString(f.GetName())
			for _, l := range m.Label {
				fmt.Fprintf(&text, "{%s=%q}", l.GetName(), l.GetValue())
			}
			fmt.Fprintln(&text, "", m.GetGauge().GetValue())
		}
	}
	return text.String()
}

func existing(change func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Labels: map[string]string{}, Annotations: map[string]string{}}}
	n.Status.Capacity = v1.ResourceList{"cpu": resource.MustParse("2")}
	n.Status.Allocatable = n.Status.Capacity
	if change != nil {
		change(n)
	}
	return n
}

func TestRegistration(t *testing.T) {
	creates := kubeapitest.Of("create", kubeapi.Nodes)
	for _, tc := range []struct {
		name    string
		have    *v1.Node
		fail    []kubeapitest.Fault
		change  func(*kubeapi.NodeConfig)
		within  time.Duration
		patches int // of registration
		want    func(*v1.Node) bool
	}{
		{name: "there, attach on", have: existing(nil), change: func(c *kubeapi.NodeConfig) { c.ControllerAttach = true },
			want: func(n *v1.Node) bool { return n.Annotations[kubeapi.AnnotationAttach] == "true" }},
		{name: "there, attach off", have: existing(func(n *v1.Node) { n.Annotations[kubeapi.AnnotationAttach] = "true" }),
			want: func(n *v1.Node) bool { return n.Annotations[kubeapi.AnnotationAttach] == "" }},
		{name: "there: taints and labels stay", have: existing(func(n *v1.Node) { n.Labels["site"] = "south" }),
			change: func(c *kubeapi.NodeConfig) {
				c.Taints, c.Labels = []v1.Taint{{Key: "t", Effect: "NoSchedule"}}, map[string]string{"site": "north", v1.LabelTopologyZone: "z"}
			},
			want: func(n *v1.Node) bool {
				return len(n.Spec.Taints) == 0 && n.Labels["site"] == "south" && n.Labels[v1.LabelTopologyZone] == "z"
			}},
		{name: "there, devices unknown", have: existing(func(n *v1.Node) { n.Status.Capacity["a.com/x"] = resource.MustParse("3") }),
			change: func(c *kubeapi.NodeConfig) { c.FreshDevices = func() bool { return true } }},
		{name: "may not be made, is there", have: existing(nil), fail: []kubeapitest.Fault{kubeapitest.Refuse(-1, kubeapitest.Status(http.StatusForbidden), creates)}},
		{name: "errors of create", fail: []kubeapitest.Fault{kubeapitest.Refuse(5, kubeapitest.Status(http.StatusInternalServerError), creates)}, within: time.Minute},
		{name: "errors of get", have: existing(nil), fail: []kubeapitest.Fault{kubeapitest.Refuse(5, kubeapitest.Status(http.StatusInternalServerError), kubeapitest.Of("get", kubeapi.Nodes))}, within: time.Minute},
		{name: "errors of patch", have: existing(nil), fail: []kubeapitest.Fault{kubeapitest.Refuse(5, kubeapitest.Status(http.StatusConflict), kubeapitest.Of("patch", kubeapi.Nodes))}, within: time.Minute,
			change: func(c *kubeapi.NodeConfig) { c.ControllerAttach = true }},
		{name: "no permission for a while", fail: []kubeapitest.Fault{kubeapitest.Refuse(20, kubeapitest.Status(http.StatusUnauthorized), kubeapitest.Any)}, within: 5 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := kubeapitest.New()
				if tc.have != nil {
					srv.Create(tc.have.DeepCopy())
				}
				for _, f := range tc.fail {
					srv.Fail(f)
				}
				r := nodeStart(t, srv, newSays(), tc.change)
				time.Sleep(max(tc.within, time.Second))
				n := r.node()
				if n == nil || ready(n).Status != v1.ConditionTrue {
					t.Fatalf("got %+v", n)
				}
				if tc.want != nil && !tc.want(n) {
					t.Errorf("got %+v", n)
				}
			})
		})
	}
}

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := nodeStart(t, kubeapitest.New(), newSays(), nil)
		time.Sleep(10 * time.Minute)
		r.srv.ForgetRequests()
		r.says.mu.Lock()
		r.says.fills = 0
		r.says.mu.Unlock()
		time.Sleep(time.Hour)
		if got := r.srv.Count("patch", kubeapi.Nodes); got < 10 || got > 13 {
			t.Errorf("%d reports in an idle hour", got)
		}
		r.says.mu.Lock()
		if r.says.fills > 30 {
			t.Errorf("computed %d times in an idle hour", r.says.fills)
		}
		r.says.mu.Unlock()
		// A change is there at once.
		before := r.srv.Count("patch", kubeapi.Nodes)
		r.says.set(func() { r.says.problem = "down" })
		synctest.Wait()
		if got := ready(r.node()); got.Status != v1.ConditionFalse || got.Message != "down" || r.srv.Count("patch", kubeapi.Nodes) != before+1 {
			t.Errorf("got %+v", got)
		}
		r.says.set(func() {})
		synctest.Wait()
		if r.srv.Count("patch", kubeapi.Nodes) != before+1 {
			t.Error("nothing is new, and yet it is reported")
		}
		if r.told() != "Starting Ready=False" {
			t.Errorf("events %q", r.told())
		}
		r.says.set(func() { r.says.note = "10.0.0.1" })
		synctest.Wait()
		if r.node().Annotations[status.AnnotationProvidedIP] != "10.0.0.1" {
			t.Error("the annotation is not reported")
		}
	})
}

// What of the status is not known is said when it changes, and not at each look.
func TestWhatIsNotKnownIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		s := newSays()
		s.unknown = errors.New("node IP: 127.0.0.1 is a loopback address")
		r := nodeStart(t, kubeapitest.New(), s, func(c *kubeapi.NodeConfig) { c.Log = zap.New(core) })
		told := func() (out []string) {
			for _, e := range logs.TakeAll() {
				if strings.Contains(e.Message, "of node status") {
					text, _ := e.ContextMap()["error"].(string)
					out = append(out, e.Level.String()+" "+text)
				}
			}
			return out
		}
		time.Sleep(time.Hour)
		if got := told(); len(got) != 1 || got[0] != "warn node IP: 127.0.0.1 is a loopback address" {
			t.Errorf("said %q", got)
		}
		if n := r.node(); n == nil || ready(n).Status != v1.ConditionTrue {
			t.Errorf("the rest is not reported: %+v", n)
		}
		s.set(func() { s.unknown = errors.New("another") })
		time.Sleep(time.Hour)
		s.set(func() { s.unknown = nil })
		time.Sleep(time.Hour)
		if got := told(); len(got) != 2 || got[0] != "warn another" || got[1] != "info " {
			t.Errorf("said %q", got)
		}
	})
}

func TestOthersChangeTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cidrs []string
		refuse := true
		r := nodeStart(t, kubeapitest.New(), newSays(), func(c *kubeapi.NodeConfig) {
			c.PodCIDR = func(_ context.Context, s string) error {
				if refuse {
					refuse = false
					return errors.New("not now")
				}
				cidrs = append(cidrs, s)
				return nil
			}
		})
		time.Sleep(time.Second)
		n := r.node()
		n.Spec.Unschedulable, n.Spec.PodCIDRs = true, []string{"10.1.0.0/24", "fd00::/64"}
		delete(n.Labels, v1.LabelArchStable)
		n.Labels["site"] = "new"
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "NetworkUnavailable", Status: "False"})
		r.srv.Put(n)
		time.Sleep(6 * time.Minute)
		if have, _ := r.m.Node(); !have.Spec.Unschedulable || have.Labels["site"] != "new" {
			t.Errorf("knows %+v", have)
		}
		if len(cidrs) != 1 || cidrs[0] != "10.1.0.0/24,fd00::/64" {
			t.Errorf("ranges %v", cidrs)
		}
		now := r.node()
		if now.Labels[v1.LabelArchStable] == "" || len(now.Status.Conditions) != 2 || !now.Spec.Unschedulable {
			t.Errorf("got %+v", now)
		}
	})
}

func TestServerAwayForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := nodeStart(t, kubeapitest.New(), newSays(), nil)
		time.Sleep(time.Minute)
		r.srv.ForgetRequests()
		r.srv.Stop()
		r.says.set(func() { r.says.problem = "down" })
		time.Sleep(time.Minute)
		r.says.set(func() { r.says.problem = ""; r.says.once = []status.Event{{Reason: "Once"}} })
		time.Sleep(3 * time.Hour)
		if n, live := r.m.Node(); n == nil || !live {
			t.Error("the node is forgotten")
		}
		if got := r.told(); got != "Starting" {
			t.Errorf("events of a state that nobody saw: %q", got)
		}
		r.srv.Start()
		time.Sleep(11 * time.Second)
		if got := ready(r.node()); got.Status != v1.ConditionTrue {
			t.Errorf("got %+v", got)
		}
		if got := r.told(); got != "Starting Once" {
			t.Errorf("events %q", got)
		}
	})
}

func TestStormOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := nodeStart(t, kubeapitest.New(), newSays(), nil)
		time.Sleep(time.Minute)
		for _, code := range []int{409, 401, 500, 503} {
			r.srv.ForgetRequests()
			r.srv.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(code), kubeapitest.Of("patch", kubeapi.Nodes)))
			r.says.set(func() { r.says.problem = "p" + http.StatusText(code) })
			time.Sleep(time.Minute)
			// 200 ms doubling to 10 s, and not five in a row every 10 s.
			if got := r.srv.Count("patch", kubeapi.Nodes); got < 6 || got > 16 {
				t.Errorf("%d: %d tries in a minute", code, got)
			}
			r.srv.Heal()
			time.Sleep(11 * time.Second)
			if got := ready(r.node()); got.Message != "p"+http.StatusText(code) {
				t.Errorf("got %+v", got)
			}
		}
	})
}

func TestDeletedNode(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := nodeStart(t, kubeapitest.New(), newSays(), func(c *kubeapi.NodeConfig) { c.Reregister = again })
			time.Sleep(time.Minute)
			uid := r.m.UID()
			r.srv.Remove(kubeapi.Nodes, "", "edge-1")
			time.Sleep(time.Minute)
			switch n := r.node(); {
			case !again && (n != nil || r.m.UID() != ""):
				t.Errorf("it is back: %v", n)
			case again && (n == nil || n.UID == uid || r.m.UID() != n.UID || ready(n).Status != v1.ConditionTrue):
				t.Errorf("got %+v", n)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Contains(r.changed, "gone") {
				t.Errorf("told %v", r.changed)
			}
		})
	}
}

// A store that was lost has not taken the node out of service.
func TestWipedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := nodeStart(t, kubeapitest.New(), newSays(), nil)
		time.Sleep(time.Minute)
		uid := r.m.UID()
		for range 20 {
			r.srv.Compact() // history goes on
		}
		time.Sleep(10 * time.Minute)
		r.srv.Wipe()
		time.Sleep(time.Minute)
		if n := r.node(); n == nil || n.UID == uid || r.m.UID() != n.UID || ready(n).Status != v1.ConditionTrue {
			t.Errorf("got %+v", n)
		}
	})
}

func TestStoredNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, store := kubeapitest.New(), &checkpointtest.Disk{}
		withStore := func(c *kubeapi.NodeConfig) { c.Store = store }
		r := nodeStart(t, srv, newSays(), withStore)
		time.Sleep(time.Minute)
		n := r.node()
		n.Labels["site"] = "south"
		srv.Put(n)
		time.Sleep(10 * time.Minute)
		r.stop()
		if n := store.Count("write"); n > 2 {
			t.Errorf("%d writes: a heartbeat writes", n)
		}
		srv.Stop()
		r = nodeStart(t, srv, newSays(), withStore)
		time.Sleep(time.Minute)
		if n, live := r.m.Node(); n == nil || live || n.Labels["site"] != "south" || r.m.UID() != "" {
			t.Errorf("without a server: %v, %t", n, live)
		}
		srv.Start()
		time.Sleep(11 * time.Second)
		if n, live := r.m.Node(); n == nil || !live || ready(n).Status != v1.ConditionTrue {
			t.Errorf("with it: %v, %t", n, live)
		}
		r.stop()
		store.Put("node", "garbage")
		m, err := kubeapi.NewNodeManager(kubeapi.NodeConfig{Name: "edge-1", API: must(kubeapi.HeartbeatClient(srv.Config(), 0, nil)), Status: newSays(), Store: store})
		if err != nil || m.Restore() == nil {
			t.Errorf("a damaged value: %v", err)
		}
	})
}

// Whoever waits for the Node to be known has what there is to have.
func TestNodeIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		there, away, watches, stored bool
		want                         bool // a Node
	}{
		"a new one":                      {want: true},
		"one that is there":              {there: true, want: true},
		"one that another makes":         {there: true, watches: true, want: true},
		"one that nobody has made":       {watches: true},
		"no server":                      {away: true},
		"no server, and one is stored":   {away: true, stored: true, want: true},
		"a server, and one is stored":    {there: true, stored: true, want: true},
		"none is made, and no server":    {away: true, watches: true},
		"none is made, one is stored":    {away: true, watches: true, stored: true, want: true},
		"stored, and none at the server": {watches: true, stored: true, want: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv, store := kubeapitest.New(), &checkpointtest.Disk{}
			if tc.there {
				srv.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}})
			}
			if tc.stored {
				store.Put("node", `{"metadata":{"name":"edge-1"}}`)
			}
			if tc.away {
				srv.Stop()
			}
			r := nodeStart(t, srv, newSays(), func(c *kubeapi.NodeConfig) { c.Register, c.Store = !tc.watches, store })
			<-r.m.Known()
			if n, _ := r.m.Node(); (n != nil) != tc.want {
				t.Errorf("%s: known is %v", name, n)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What a server makes of patches is what the node says, whatever was before.
func TestPatchesArriveAsMeant(t *testing.T) {
	srv := kubeapitest.New()
	api := must(kubeapi.HeartbeatClient(srv.Config(), 0, nil))
	rnd := rand.New(rand.NewPCG(1, 2))
	random := func() v1.NodeStatus {
		s := v1.NodeStatus{Capacity: v1.ResourceList{}}
		for _, name := range []v1.ResourceName{"cpu", "memory", "x"} {
			if rnd.IntN(3) > 0 {
				s.Capacity[name] = *resource.NewQuantity(rnd.Int64N(3), resource.DecimalSI)
			}
		}
		for _, kind := range []v1.NodeConditionType{"A", "B", "C"} {
			if rnd.IntN(3) > 0 {
				s.Conditions = append(s.Conditions, v1.NodeCondition{Type: kind, Status: v1.ConditionTrue, Reason: []string{"", "r"}[rnd.IntN(2)]})
			}
		}
		for range rnd.IntN(4) {
			s.Addresses = append(s.Addresses, v1.NodeAddress{Type: []v1.NodeAddressType{"InternalIP", "Hostname"}[rnd.IntN(2)], Address: []string{"a", "b"}[rnd.IntN(2)]})
		}
		for range rnd.IntN(3) {
			s.Images = append(s.Images, v1.ContainerImage{SizeBytes: rnd.Int64N(2)})
		}
		if rnd.IntN(2) == 0 {
			yes := rnd.IntN(2) == 0
			s.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &yes}
		}
		return s
	}
	for range 300 {
		old := existing(nil)
		for old.Status = random(); len(old.Status.Addresses) == 0; { // a list that is new is taken as it is
			old.Status = random()
		}
		srv.Put(old)
		want := old.DeepCopy()
		want.Status = random()
		patch, err := kubeapi.NodePatch(old, want)
		if err != nil {
			t.Fatal(err)
		}
		got := &v1.Node{}
		if err := api.Patch(t.Context(), kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, "application/strategic-merge-patch+json", patch, got, "status"); err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		if !status.Same(&got.Status, &want.Status) {
			t.Fatalf("%s\nmade %+v\nwant %+v", patch, got.Status, want.Status)
		}
	}
}

func TestNodeConfig(t *testing.T) {
	_, err := kubeapi.NewNodeManager(kubeapi.NodeConfig{Update: -1, Report: -1})
	for _, want := range []string{"Name", "API", "Status", "Update", "Report"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	_, err = kubeapi.NewLease(kubeapi.LeaseConfig{Duration: time.Millisecond})
	for _, want := range []string{"Name", "API", "Duration"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
