package local

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/podtext"
)

const (
	// MaxPagePods limits the pods on a page.
	MaxPagePods = 500
	// maxText limits the bytes shown of a message, a reason or a name; maxFilter limits the bytes
	// of a search.
	maxText   = 2 << 10
	maxFilter = 200
	// maxState limits the bytes shown of a pod's state in the list.
	maxState = 64
	// maxRanked limits the pods in the order of eviction, maxImages the images, and maxRows the
	// rows of other lists except pods and events.
	maxRanked = 10
	maxImages = 200
	maxRows   = 100
	// startTime is how long a pod may start without a failure before it counts as broken.
	startTime = time.Minute
)

// functions are the functions that templates call.
var functions = map[string]any{
	"age": age, "bytes": bytesOf, "short": short, "clock": clock, "when": func(t time.Time) string { return When(t, time.Now()) }, "inc": func(i int) int { return i + 1 },
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// overview is the content of the first page.
type overview struct {
	Name, State, StateClass string
	At                      time.Time
	Stale                   error   // why the agent does not answer
	Unknown                 bool    // the agent has never answered
	Errors                  []error // why parts of the page are missing
	Facts                   []string
	Node                    *NodeWhy // nil: not known
	Meters                  []meter
	Charts                  []chart
	Filter                  filter
	Namespaces              []string
	Total, Good, Bad        int // pods
	Matching, More          int // pods that match the filter, and how many of them are not shown
	Pods                    []podRow
	Problems                []Problem
	Pressed                 bool          // a threshold is met
	Next                    []rank.Ranked // by memory; the first would be evicted first
	Events                  []v1.Event
	Images                  *Images // nil: not known
}

// Title returns the title of the tab.
func (o overview) Title() string {
	switch {
	case o.Stale != nil:
		return o.Name + ": no answer"
	case o.Bad > 0:
		return fmt.Sprintf("%s: %d broken", o.Name, o.Bad)
	default:
		return fmt.Sprintf("%s: %d of %d run", o.Name, o.Good, o.Total)
	}
}

// Live returns the data with which a script updates the page.
func (o overview) Live() live { return live{o.Title(), o.Stale != nil} }

// live has the data for the script that updates a part of the page.
type live struct {
	Title string
	Stale bool
}

// meter is the used share of a resource.
type meter struct {
	Name, Share, Text string
	Width             int64 // of 100
	High              bool
}

// filter selects and orders the pods that are shown.
type filter struct{ Text, Namespace, State, Sort string }

func filterOf(q url.Values) filter {
	get := func(key string) string {
		s := q.Get(key)
		return strings.ToValidUTF8(s[:min(len(s), maxFilter)], "")
	}
	return filter{get("q"), get("ns"), get("state"), get("sort")}
}

// States returns the states that can be selected.
func (filter) States() []option {
	return []option{{"", "any state"}, {"bad", "broken"}, {"starting", "starting"}, {"ok", "running"}, {"ending", "ending"}, {"done", "done"}}
}

// Sorts returns the orders that can be selected.
func (filter) Sorts() []option {
	return []option{{"", "broken first"}, {"name", "by name"}, {"age", "youngest first"}, {"restarts", "most restarts"}, {"cpu", "most CPU"}, {"memory", "most memory"}}
}

type option struct{ Value, Text string }

// On reports whether the filter excludes any pods.
func (f filter) On() bool { return f.Text != "" || f.Namespace != "" || f.State != "" }

func (f filter) matches(r *podRow) bool {
	if f.Namespace != "" && r.Namespace != f.Namespace || f.State != "" && r.Class != f.State {
		return false
	}
	text := strings.ToLower(strings.Join([]string{r.Namespace + "/" + r.Name, r.State, r.Why, r.images}, "\n"))
	for _, word := range strings.Fields(strings.ToLower(f.Text)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// order compares rows.
func (f filter) order(a, b *podRow) int {
	by := map[string]int{
		"": cmp.Compare(slices.Index(classes, a.Class), slices.Index(classes, b.Class)), "age": b.created.Compare(a.created),
		"restarts": cmp.Compare(b.Restarts, a.Restarts), "cpu": cmp.Compare(b.cpu, a.cpu), "memory": cmp.Compare(b.memory, a.memory),
	}
	return cmp.Or(by[f.Sort], cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// classes are the classes of pods by their state, worst first.
var classes = []string{"bad", "starting", "ending", "ok", "done"}

// podRow is a pod in the overview.
type podRow struct {
	Namespace, Name    string
	Base, Suffix       string // Name without the suffix, and the suffix with the node's name
	UID, Path          string // of its page, below pods/
	Ready, Total       int
	Restarts           int32
	Evicted            string // time since the last eviction
	Class, State, Age  string
	CPU, Memory, Spark string
	Why                string
	cpu, memory        int64
	created            time.Time
	images             string
}

func (p *Page) overview(ctx context.Context, r *http.Request) (content, error) {
	a := gather(ctx, p.cfg.Agent)
	o := overview{Filter: filterOf(r.URL.Query())}
	p.mu.Lock()
	if a.down == nil {
		p.last = a
	} else {
		o.Stale, o.Unknown = a.down, p.last == nil
		if p.last != nil {
			a = p.last
		}
	}
	p.mu.Unlock()
	o.fill(a)
	return o, nil
}

// fill sets the content from the answers, which are not changed.
func (o *overview) fill(a *answers) {
	o.At, o.Name, o.Images, o.Events = a.at, "node", a.images, a.events
	o.Problems, o.Next, o.Charts = first(a.problems, maxRows), first(a.next, maxRanked), a.charts()
	if o.Stale == nil {
		o.Errors = a.errs
	}
	if a.why != nil {
		n := *a.why
		o.Name = cmp.Or(n.Name, o.Name)
		n.Conditions, n.Figures = first(n.Conditions, maxRows), first(n.Figures, maxRows)
		n.Decisions = slices.Clone(n.Decisions)
		slices.Reverse(n.Decisions)
		n.Decisions = first(n.Decisions, maxRows)
		o.Pressed = slices.ContainsFunc(n.Figures, func(f NodeFigure) bool { return f.Met })
		o.Node = &n
	}
	o.State, o.StateClass = a.state()
	o.Facts, o.Meters = a.facts(), a.meters()
	if o.Images != nil {
		i := *o.Images
		i.Images = first(i.Images, maxImages)
		o.Images = &i
	}
	o.fillPods(a)
}

func (o *overview) fillPods(a *answers) {
	o.Total = len(a.pods)
	var rows []podRow
	for i := range a.pods {
		pod := &a.pods[i]
		row := rowOf(pod, a.used[pod.UID], a.whys[pod.UID], a.evicted[pod.UID], a.at)
		switch row.Class {
		case "bad":
			o.Bad++
		case "ok":
			o.Good++
		}
		if !slices.Contains(o.Namespaces, pod.Namespace) && len(o.Namespaces) < maxRows {
			o.Namespaces = append(o.Namespaces, pod.Namespace)
		}
		if o.Filter.matches(&row) {
			if a.history != nil {
				row.Spark = spark(a.history.Pods[row.UID].CPU)
			}
			rows = append(rows, row)
		}
	}
	slices.Sort(o.Namespaces)
	slices.SortFunc(rows, func(a, b podRow) int { return o.Filter.order(&a, &b) })
	o.Matching, o.Pods = len(rows), first(rows, MaxPagePods)
	o.More = len(rows) - len(o.Pods)
}

// rowOf returns the row of a pod with its usage and its explanation; each is nil if it is not
// known. Evictions count as restarts.
func rowOf(p *v1.Pod, use *statsapi.PodStats, why *Why, evicted podtext.Evictions, now time.Time) podRow {
	ready, total, restarts := podtext.Counts(p)
	base, suffix := splitName(p)
	r := podRow{
		Namespace: p.Namespace, Name: p.Name, Base: base, Suffix: suffix, UID: string(p.UID), Path: joinPath(p.Namespace, p.Name), Ready: ready, Total: total, Restarts: restarts + evicted.Count,
		Class: classOf(p, why, now), State: cutTo(podtext.State(p), maxState), Age: podtext.Age(p, now), cpu: -1, memory: -1, created: podtext.Created(p).Time,
	}
	if evicted.Count > 0 {
		r.Evicted = duration.HumanDuration(now.Sub(evicted.Last))
	}
	for i := range p.Spec.Containers {
		r.images += p.Spec.Containers[i].Image + "\n"
	}
	if why != nil && !why.Good {
		r.Why = why.Cause
	}
	if use != nil {
		r.cpu, r.memory = used(use.CPU, use.Memory)
		r.CPU, r.Memory = millis(r.cpu), bytesOf(r.memory)
	}
	return r
}

// splitName separates the node's name from the name of a static pod.
func splitName(p *v1.Pod) (name, suffix string) {
	suffix = "-" + strings.ToLower(p.Spec.NodeName)
	if len(suffix) > 1 && len(p.Name) > len(suffix) && strings.HasSuffix(p.Name, suffix) {
		return strings.TrimSuffix(p.Name, suffix), suffix
	}
	return p.Name, ""
}

// classOf returns the class of a pod: one of classes.
func classOf(p *v1.Pod, why *Why, now time.Time) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "ending"
	case !isBad(p, why):
		if p.Status.Phase == v1.PodSucceeded {
			return "done"
		}
		return "ok"
	case p.Status.Phase == v1.PodPending && now.Sub(p.CreationTimestamp.Time) < startTime && (why == nil || why.Failures == 0 && why.LastError == ""):
		return "starting"
	default:
		return "bad"
	}
}

// state returns the state of the node in one or two words.
func (a *answers) state() (text, class string) {
	if a.why == nil {
		return "", ""
	}
	conditions := a.why.Conditions
	if a.node != nil {
		conditions = a.node.Status.Conditions
	}
	text, class = "up", "ok"
	for _, c := range conditions {
		switch {
		case c.Type == v1.NodeReady && c.Status == v1.ConditionTrue:
			text = "Ready"
		case c.Type == v1.NodeReady:
			return "not ready: " + cmp.Or(c.Message, c.Reason), "bad"
		case c.Status == v1.ConditionTrue:
			return string(c.Type), "bad"
		}
	}
	switch {
	case a.why.ShuttingDown:
		return "shutting down", "ending"
	case a.node != nil && a.node.Spec.Unschedulable:
		return text + ", cordoned", "starting"
	}
	return text, class
}

// facts returns the properties of the node.
func (a *answers) facts() (all []string) {
	add := func(before, s string) {
		if s != "" {
			all = append(all, before+s)
		}
	}
	if n := a.node; n != nil {
		for _, addr := range n.Status.Addresses {
			if addr.Type == v1.NodeInternalIP {
				add("", addr.Address)
			}
		}
		add("", n.Status.NodeInfo.OSImage)
		add("kernel ", n.Status.NodeInfo.KernelVersion)
		add("", n.Status.NodeInfo.Architecture)
	}
	if w := a.why; w != nil {
		add("runtime ", w.Runtime)
		add("network ", w.Network)
	}
	return all
}

// meters returns the node's load.
func (a *answers) meters() (all []meter) {
	add := func(name string, v, of int64, show func(int64) string) {
		if v >= 0 && of > 0 {
			all = append(all, meter{name, percent(v, of), show(v) + " of " + show(of), min(100, v*100/of), v*100/of >= 90})
		}
	}
	cpus, memory := a.capacity()
	if a.summary != nil {
		c, m := used(a.summary.Node.CPU, a.summary.Node.Memory)
		add("CPU", c, cpus, millis)
		add("memory", m, memory, bytesOf)
	}
	if h := a.history; h != nil && len(h.Node.Disk) > 0 {
		add("disk", h.Node.Disk[len(h.Node.Disk)-1], h.Node.DiskSize, bytesOf)
	}
	return all
}

func addresses(p *v1.Pod) string {
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return strings.Join(ips, ", ")
}

// joinPath joins names to a path; names may have any bytes.
func joinPath(names ...string) string {
	for i, n := range names {
		names[i] = url.PathEscape(n)
	}
	return strings.Join(names, "/")
}

// first returns the first n elements of list, or all if there are fewer.
func first[T any](list []T, n int) []T { return list[:min(len(list), n)] }

// short cuts s to maxText bytes.
func short(s string) string { return cutTo(s, maxText) }

func cutTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// age returns how long ago something was.
func age(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return duration.HumanDuration(max(time.Since(t), 0))
}

// bytesOf formats an amount of memory; "" if it is unknown, which is below 0.
func bytesOf(bytes int64) string {
	n := float64(bytes)
	if n < 0 {
		return ""
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			return strconv.FormatFloat(n, 'f', precision(n), 64) + " " + unit
		}
		n /= 1024
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " TiB"
}

func precision(n float64) int {
	if n < 10 && n != float64(int(n)) {
		return 1
	}
	return 0
}

// millis formats thousandths of a CPU; "" if it is unknown, which is below 0.
func millis(n int64) string {
	switch {
	case n < 0:
		return ""
	case n > 0 && n < 1000:
		return strconv.FormatInt(n, 10) + "m"
	case n%1000 == 0:
		return strconv.FormatInt(n/1000, 10)
	}
	return strconv.FormatFloat(float64(n)/1000, 'f', 2, 64)
}
