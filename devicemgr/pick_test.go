package devicemgr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/numa"
)

// parse reads devices such as "a@0 b@0-1 c d! e@1*": near nodes, unhealthy (!),
// taken (*).
func parse(t *testing.T, s string) (list []Device, taken map[string]bool) {
	t.Helper()
	taken = map[string]bool{}
	for _, f := range strings.Fields(s) {
		d := Device{Healthy: true}
		busy := false
		for last := f[len(f)-1]; last == '!' || last == '*'; last = f[len(f)-1] {
			d.Healthy = d.Healthy && last != '!'
			busy = busy || last == '*'
			f = f[:len(f)-1]
		}
		id, nodes, _ := strings.Cut(f, "@")
		d.ID = id
		taken[id] = busy
		for _, n := range nodes {
			if n != '-' {
				d.Nodes = d.Nodes.With(int(n - '0'))
			}
		}
		list = append(list, d)
	}
	list, _ = normal(list)
	return list, taken
}

func TestPick(t *testing.T) {
	errPlugin := errors.New("no")
	for _, tt := range []struct {
		name     string
		devices  string
		n        int
		hint     numa.NodeSet
		reusable string
		wish     string // "-": the plugin has none, "!": it fails
		want     string // or "available N"
		asked    string // "available/must/size"
	}{
		{name: "exactly all", devices: "a b", n: 2, wish: "-", want: "a b"},
		{name: "more than there are", devices: "a b", n: 3, wish: "-", want: "available 2"},
		{name: "unhealthy ones do not count", devices: "a b!", n: 2, wish: "-", want: "available 1"},
		{name: "taken ones do not count", devices: "a* b", n: 2, wish: "-", want: "available 1"},
		{name: "none", devices: "", n: 1, wish: "-", want: "available 0"},
		{name: "by ID without a hint", devices: "c@1 b@0 a@1", n: 2, wish: "-", want: "a b"},
		{name: "near the hint", devices: "a@0 b@1 c@0 d@1", n: 2, hint: numa.Nodes(1), wish: "-", want: "b d"},
		{name: "near first, then far, then nowhere", devices: "a b@0 c@1 d@1", n: 3, hint: numa.Nodes(1), wish: "-", want: "b c d"},
		{name: "nowhere last", devices: "a b@0 c@1", n: 3, hint: numa.Nodes(1), wish: "-", want: "a b c"},
		{name: "need 4 with 2 aligned", devices: "a@0 b@0 c@1 d@1 e@0", n: 4, hint: numa.Nodes(1), wish: "-", want: "a b c d"},
		{name: "no device has nodes", devices: "a b c", n: 2, hint: numa.Nodes(1), wish: "-", want: "a b"},
		{name: "of several nodes counts to the hint", devices: "a@0 b@0-1", n: 1, hint: numa.Nodes(1), wish: "-", want: "b"},
		{name: "scarcer node of the hint first", devices: "a@0 b@0 c@1", n: 1, hint: numa.Nodes(0, 1), wish: "-", want: "c"},
		{name: "reusable first", devices: "a b c*", n: 2, reusable: "c", wish: "-", want: "a c"},
		{name: "reusable enough", devices: "a c* d*", n: 1, reusable: "c d", wish: "a", want: "c"},
		{name: "reusable but ill", devices: "a c!*", n: 1, reusable: "c", wish: "-", want: "a"},

		{name: "wish", devices: "a b c", n: 1, wish: "c", want: "c", asked: "a b c//1"},
		{name: "wish for too few", devices: "a b c", n: 2, wish: "c", want: "a c", asked: "a b c//2"},
		{name: "wish for too many", devices: "a b c", n: 1, wish: "c b a", want: "c", asked: "a b c//1"},
		{name: "wish for the unknown", devices: "a b c", n: 1, wish: "x y", want: "a", asked: "a b c//1"},
		{name: "wish for the taken", devices: "a b c*", n: 1, wish: "c", want: "a", asked: "a b//1"},
		{name: "unaligned wish while enough are aligned", devices: "a@0 b@1 c@1", n: 1, hint: numa.Nodes(1), wish: "a", want: "b", asked: "b c//1"},
		{name: "aligned wish", devices: "a@0 b@1 c@1", n: 1, hint: numa.Nodes(1), wish: "c", want: "c", asked: "b c//1"},
		{name: "as many as are aligned: not asked", devices: "a@0 b@1 c@1", n: 2, hint: numa.Nodes(1), wish: "a", want: "b c"},
		{name: "more than are aligned", devices: "a@0 b@1 c@0", n: 2, hint: numa.Nodes(1), wish: "c", want: "b c", asked: "a b c/b/2"},
		{name: "2 reusable", devices: "a b c* d*", n: 3, reusable: "c d", wish: "b", want: "b c d", asked: "a b c d/c d/3"},
		{name: "plugin fails", devices: "a b", n: 1, wish: "!", want: "no", asked: "a b//1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			devices, taken := parse(t, tt.devices)
			asked := ""
			w := want{
				resource: "example.com/gpu", count: tt.n, devices: devices, hint: tt.hint, reusable: strings.Fields(tt.reusable),
				taken: func(id string) bool { return taken[id] },
			}
			if tt.wish != "-" {
				w.prefer = func(available, must []string, size int) ([]string, error) {
					if asked != "" {
						t.Error("asked twice")
					}
					asked = fmt.Sprintf("%s/%s/%d", strings.Join(available, " "), strings.Join(must, " "), size)
					if tt.wish == "!" {
						return nil, errPlugin
					}
					return strings.Fields(tt.wish), nil
				}
			}
			got, err := pick(w)
			text := strings.Join(got, " ")
			var few *InsufficientError
			switch {
			case errors.As(err, &few):
				text = fmt.Sprint("available ", few.Available)
			case err != nil:
				text = err.Error()
			}
			if text != tt.want {
				t.Errorf("picked %q, want %q", text, tt.want)
			}
			if asked != tt.asked {
				t.Errorf("asked %q, want %q", asked, tt.asked)
			}
			if again, _ := pick(want{count: w.count, devices: devices, hint: tt.hint, reusable: w.reusable, taken: w.taken}); tt.wish == "-" && !slices.Equal(got, again) {
				t.Errorf("picked %v, then %v", got, again)
			}
		})
	}
}

func TestHints(t *testing.T) {
	machine := func(n int) (m numa.Machine) {
		for i := range n {
			m.Nodes = append(m.Nodes, numa.Node{ID: i})
			m.CPUs = append(m.CPUs, numa.CPU{ID: i, Node: i, Socket: i})
		}
		return m
	}
	for _, tt := range []struct {
		name    string
		devices string
		nodes   int
		n       int
		must    string
		want    string // preferred ones have a +
	}{
		{"one device per node", "a@0 b@1", 2, 1, "", "0+ 1+ 0-1"},
		{"one device on node 0", "a@0", 2, 1, "", "0+"},
		{"2 with one per node", "a@0 b@1", 2, 2, "", "0-1+"},
		{"2 with two per node", "a@0 b@0 c@1 d@1", 2, 2, "", "0+ 1+ 0-1"},
		{"would fit one node, were it not busy", "a@0* b@0 c@1", 2, 2, "", "0-1"},
		{"unhealthy ones are installed", "a@0! b@0 c@1", 2, 2, "", "0-1"},
		{"no device has nodes", "a b", 2, 1, "", "any"},
		{"those without nodes match none", "a b@1", 2, 2, "", ""},
		{"too few", "a@0", 2, 2, "", ""},
		{"none free", "a@0*", 2, 1, "", ""},
		{"of two nodes", "a@0-1", 2, 1, "", "0+ 1+ 0-1"},
		{"unknown nodes alone", "a@7", 2, 1, "", ""},
		{"unknown nodes beside known ones", "a@7 b@1", 2, 1, "", "1+"},
		{"reusable ones are used", "a@0* b@1", 2, 1, "a", "0+ 0-1"},
		{"reusable and one more", "a@0* b@1", 2, 2, "a", "0-1+"},
		{"no machine", "a@0", 0, 1, "", "any"},
		{"more nodes than subsets", "a@0 b@9", 10, 1, "", "0+ 9+"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			devices, taken := parse(t, tt.devices)
			q := question{
				resource: "example.com/gpu", devices: devices, n: tt.n, must: strings.Fields(tt.must),
				free: func(id string) bool { d, _ := find(devices, id); return d.Healthy && !taken[id] },
			}
			h := q.hints(machine(tt.nodes))
			var parts []string
			for _, x := range h.List {
				if tt.nodes > 8 && !x.Preferred {
					continue
				}
				s := x.Nodes.String()
				if x.Preferred {
					s += "+"
				}
				parts = append(parts, s)
			}
			got := strings.Join(parts, " ")
			if h.Any {
				got = "any"
			}
			if got != tt.want {
				t.Errorf("hints %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNormal(t *testing.T) {
	got, dropped := normal([]Device{{ID: "b"}, {ID: ""}, {ID: "a"}, {ID: "b", Healthy: true}})
	if want := []Device{{ID: "a"}, {ID: "b", Healthy: true}}; !slices.Equal(got, want) || dropped != 2 {
		t.Errorf("normal = %v and %d dropped, want %v and 2", got, dropped, want)
	}
}

func TestCheckResource(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, good := range map[string]bool{
		"example.com/gpu": true, "nvidia.com/gpu.shared": true, "a/B_c": true, "example.com/mig-1g.5gb": true,
		"gpu": false, "": false, "/gpu": false, "example.com/": false, "kubernetes.io/gpu": false, "sub.kubernetes.io/gpu": false,
		"requests.example.com/gpu": false, "example.com/g/pu": false, "Example.com/gpu": false, "example..com/gpu": false,
		"example.com/" + long: false, "example.com/-gpu": false, "cpu": false, "hugepages-2Mi": false, "exa mple/gpu": false,
	} {
		if err := CheckResource(name); (err == nil) != good {
			t.Errorf("CheckResource(%q) = %v, want good=%v", name, err, good)
		}
	}
}

// For any content of a pod's file, reading returns an error, or a record that is written again
// unchanged.
func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"uid":"u","held":[{"container":"c","resource":"example.com/gpu","devices":[{"id":"a","nodes":1}],"attachment":{}}]}`))
	f.Add([]byte(`{"version":1,"uid":"u","lost":true}`))
	f.Add([]byte(`{"version":2,"uid":"u"}{}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := parseRecord("u", value)
		if err != nil {
			return
		}
		store := &checkpointtest.Disk{}
		m := &Manager{cfg: Config{Store: store}}
		if err := m.write(r); err != nil {
			t.Fatal(err)
		}
		again, err := parseRecord("u", []byte(store.Value(podPrefix+"u")))
		if err != nil || len(again.Held) != len(r.Held) || again.Lost != r.Lost {
			t.Fatalf("read again: %v %v, was %v", again, err, r)
		}
	})
}
