package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// Annotations of pods.
const (
	// AnnotationAfter lists the pods that have to be ready before this pod starts: NAME or
	// NAMESPACE/NAME, separated by commas.
	AnnotationAfter = "nodewright.io/after"
	// AnnotationStartPriority is a number from -1000000 to 1000000; the default is 0. Pods with
	// higher numbers start first.
	AnnotationStartPriority = "nodewright.io/start-priority"
)

const (
	maxPriority = 1_000_000
	// maxAfter limits the names in an annotation that are used.
	maxAfter = 64
	// maxShown limits the bytes of an annotation that a message repeats.
	maxShown = 100
)

// class is the importance of a pod: first its start priority is compared, then its own priority.
type class struct{ start, pod int32 }

func (c class) compare(d class) int {
	return cmp.Or(cmp.Compare(c.start, d.start), cmp.Compare(c.pod, d.pod))
}

// wish has the parsed annotations of a pod.
type wish struct {
	after    []string // the names as the annotation has them
	class    class
	problems []string
}

func wishOf(pod *v1.Pod) wish {
	var w wish
	if p := pod.Spec.Priority; p != nil {
		w.class.pod = *p
	}
	if s, ok := pod.Annotations[AnnotationStartPriority]; ok {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
		if err != nil || n < -maxPriority || n > maxPriority {
			w.problems = append(w.problems, fmt.Sprintf("annotation %s=%.*q: want a number from %d to %d", AnnotationStartPriority, maxShown, s, -maxPriority, maxPriority))
		} else {
			w.class.start = int32(n)
		}
	}
	names := 0
	for name := range strings.SplitSeq(pod.Annotations[AnnotationAfter], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if names++; names > maxAfter {
			w.problems = append(w.problems, fmt.Sprintf("annotation %s: names beyond the first %d are left out", AnnotationAfter, maxAfter))
			break
		}
		w.after = append(w.after, name)
	}
	return w
}

// graph has the pods and their order: which pod waits for which.
type graph struct {
	pods  map[types.UID]*orderNode
	all   []*orderNode
	equal bool                    // all pods are equally important
	names map[string][]*orderNode // by namespace/name; static pods also without the suffix of the node's name
	// done reports whether other pods need not wait for a pod any more, since it was ready
	// once, has ended, or is being deleted. at is incremented whenever a result of done may
	// change.
	done func(*v1.Pod) bool
	at   int
}

// orderNode is one pod of a graph.
type orderNode struct {
	pod     *v1.Pod
	wish    wish
	after   []*orderNode
	missing []string
	visit   int // number of the last search that visited the node
	rank    class
	ranked  int          // one more than the graph's at when rank was found
	waiters []*orderNode // nodes that wait for this one
}

func (n *orderNode) name() string { return n.pod.Namespace + "/" + n.pod.Name }

// newGraph returns the graph of the pods that the node should run.
func newGraph(pods []*v1.Pod, done func(*v1.Pod) bool) *graph {
	g := &graph{pods: make(map[types.UID]*orderNode, len(pods)), names: make(map[string][]*orderNode, len(pods)), equal: true, done: done}
	for _, p := range pods {
		n := &orderNode{pod: p, wish: wishOf(p)}
		g.pods[p.UID], g.all = n, append(g.all, n)
		g.equal = g.equal && n.wish.class == g.all[0].wish.class
		g.names[n.name()] = append(g.names[n.name()], n)
		if own, ok := strings.CutSuffix(p.Name, "-"+p.Spec.NodeName); ok && podmeta.IsStatic(p) {
			g.names[p.Namespace+"/"+own] = append(g.names[p.Namespace+"/"+own], n)
		}
	}
	for _, n := range g.all {
		for _, name := range n.wish.after {
			full := name
			if !strings.Contains(name, "/") {
				full = n.pod.Namespace + "/" + name
			}
			found := g.names[full]
			if len(found) == 0 {
				n.missing = append(n.missing, fmt.Sprintf("the node has no pod %.*q", maxShown, name))
			}
			for _, other := range found {
				n.after = append(n.after, other)
				other.waiters = append(other.waiters, n)
			}
		}
	}
	return g
}

// mark sets visit in n and in all nodes that can be reached from n through the function
// next.
func (n *orderNode) mark(visit int, next func(*orderNode) []*orderNode) {
	if n.visit == visit {
		return
	}
	n.visit = visit
	for todo := []*orderNode{n}; len(todo) > 0; {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, m := range next(last) {
			if m.visit != visit {
				m.visit = visit
				todo = append(todo, m)
			}
		}
	}
}

// needs returns the pods that a pod waits for. problems lists the names that are ignored, and why.
func (g *graph) needs(n *orderNode) (needs []*orderNode, problems []string) {
	problems = slices.Concat(n.wish.problems, n.missing)
	if len(n.after) == 0 {
		return nil, problems
	}
	// A pod cannot wait for pods that wait for it, directly or not.
	for _, m := range g.all {
		m.visit = 0
	}
	for _, w := range n.waiters {
		w.mark(1, func(m *orderNode) []*orderNode { return m.waiters })
	}
	for _, m := range n.after {
		switch {
		case m == n:
			problems = append(problems, "the pod is to begin after itself")
		case m.visit == 1:
			problems = append(problems, fmt.Sprintf("pod %s waits for this one in turn", m.name()))
		case !g.done(m.pod):
			needs = append(needs, m)
		}
	}
	return needs, problems
}

// rankOf returns the importance of a pod: the highest among itself and the pods that wait for it.
func (g *graph) rankOf(n *orderNode) class {
	if n.ranked == g.at+1 {
		return n.rank
	}
	for _, m := range g.all {
		m.visit = 0
	}
	n.mark(2, func(m *orderNode) []*orderNode { return m.waiters })
	n.rank, n.ranked = n.wish.class, g.at+1
	for _, m := range g.all {
		if m.visit == 2 && m.wish.class.compare(n.rank) > 0 && !g.done(m.pod) {
			n.rank = m.wish.class
		}
	}
	return n.rank
}

// before returns the pods that are more important than n and are not done.
func (g *graph) before(n *orderNode) (before []*orderNode) {
	if g.equal {
		return nil
	}
	rank := g.rankOf(n)
	for _, m := range g.all {
		if m != n && m.wish.class.compare(rank) > 0 && !g.done(m.pod) {
			before = append(before, m)
		}
	}
	return before
}

// list joins names. If there are many, it shows only the first of them, and the number of the
// others.
func list(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
