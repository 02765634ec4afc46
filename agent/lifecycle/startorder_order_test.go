package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// podOf is a pod that begins after others, with a start priority.
func podOf(name, after, priority string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Annotations: map[string]string{}}}
	if after != "" {
		p.Annotations[AnnotationAfter] = after
	}
	if priority != "" {
		p.Annotations[AnnotationStartPriority] = priority
	}
	return p
}

func none(*v1.Pod) bool { return false }

func TestNeeds(t *testing.T) {
	static := podOf("db-node1", "", "")
	static.Annotations[podmeta.AnnotationSource] = "file"
	static.Spec.NodeName = "node1"
	elsewhere := podOf("queue", "", "")
	elsewhere.Namespace, elsewhere.UID = "other", "other-queue"
	others := []*v1.Pod{static, elsewhere, podOf("web", "", ""), podOf("a", "b", ""), podOf("b", "c", ""), podOf("c", "a", ""), podOf("d", "a", "")}
	for after, want := range map[string]string{
		"":                        "needs; problems ",
		"web":                     "needs default/web; problems ",
		" web , ,db,":             "needs default/db-node1 default/web; problems ",
		"db-node1":                "needs default/db-node1; problems ",
		"queue":                   `needs; problems the node has no pod "queue"`,
		"other/queue":             "needs other/queue; problems ",
		"x":                       "needs; problems the pod is to begin after itself",
		"d,web":                   "needs default/d default/web; problems ",
		strings.Repeat("web,", 2): "needs default/web default/web; problems ",
	} {
		x := podOf("x", after, "")
		g := newGraph(append([]*v1.Pod{x}, others...), none)
		if got := shown(g.needs(g.pods["x"])); got != want {
			t.Errorf("after %q: %s; want %s", after, got, want)
		}
	}
	g := newGraph(others, none)
	if got, want := shown(g.needs(g.pods["a"])), "needs; problems pod default/b waits for this one in turn"; got != want {
		t.Errorf("in a cycle: %s; want %s", got, want)
	}
	if got, want := shown(g.needs(g.pods["d"])), "needs default/a; problems "; got != want {
		t.Errorf("after a cycle: %s; want %s", got, want)
	}
	g = newGraph(others, func(p *v1.Pod) bool { return p.Name == "a" })
	if got, want := shown(g.needs(g.pods["d"])), "needs; problems "; got != want {
		t.Errorf("after one that is done: %s; want %s", got, want)
	}
	many := podOf("x", strings.Repeat("web,", maxAfter+1), "")
	g = newGraph([]*v1.Pod{many, podOf("web", "", "")}, none)
	if needs, problems := g.needs(g.pods["x"]); len(needs) != maxAfter || len(problems) != 1 || !strings.Contains(problems[0], "beyond the first 64") {
		t.Errorf("%d names, %q", len(needs), problems)
	}
}

func shown(needs []*orderNode, problems []string) string {
	var names strings.Builder
	for _, n := range sorted(needs) {
		names.WriteString(" " + n)
	}
	return "needs" + names.String() + "; problems " + strings.Join(problems, "; ")
}

func sorted(nodes []*orderNode) (names []string) {
	for _, n := range nodes {
		names = append(names, n.name())
	}
	slices.Sort(names)
	return names
}

func TestPriorities(t *testing.T) {
	critical := podOf("critical", "", "")
	critical.Spec.Priority = new(int32(2_000_000_000))
	// first is as important as the pod that waits for it.
	pods := []*v1.Pod{podOf("low", "", "-1"), podOf("plain", "", ""), critical, podOf("first", "", ""), podOf("high", "middle", "7"), podOf("middle", "first", "")}
	g := newGraph(pods, none)
	for name, want := range map[string]string{
		"low": "critical high", "plain": "critical high", "critical": "high", "high": "", "first": "", "middle": "",
	} {
		var got []string
		for _, n := range sorted(g.before(g.pods[types.UID(name)])) {
			if n = strings.TrimPrefix(n, "default/"); n != "plain" && n != "first" && n != "middle" {
				got = append(got, n)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("before %s: %q, want %q", name, s, want)
		}
	}
	for bad, want := range map[string]string{"": "", "many": "want a number from -1000000 to 1000000", "1000001": "want", "99999999999999999999": "want"} {
		w := wishOf(podOf("p", "", bad))
		if strings.Join(w.problems, "") == "" != (want == "") || !strings.Contains(strings.Join(w.problems, ""), want) || w.class != (class{}) {
			t.Errorf("%q: %q, %v", bad, w.problems, w.class)
		}
	}
}

// Whatever pods name, and however important they are: all begin, each only after those
// that it waits for.
func TestNobodyWaitsForEver(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		var pods []*v1.Pod
		n := 1 + r.IntN(12)
		for i := range n {
			var after []string
			for range r.IntN(4) {
				after = append(after, fmt.Sprintf("p%d", r.IntN(n+2)))
			}
			pods = append(pods, podOf(fmt.Sprintf("p%d", i), strings.Join(after, ","), fmt.Sprint(r.IntN(3))))
		}
		done := map[types.UID]bool{}
		for len(done) < n {
			g := newGraph(pods, func(p *v1.Pod) bool { return done[p.UID] })
			began := 0
			for _, p := range pods {
				if needs, _ := g.needs(g.pods[p.UID]); !done[p.UID] && len(needs) == 0 && len(g.before(g.pods[p.UID])) == 0 {
					done[p.UID] = true
					began++
					break
				}
			}
			if began == 0 {
				t.Fatalf("seed %d: %d of %d begin", seed, len(done), n)
			}
		}
	}
}
