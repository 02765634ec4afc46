package local

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
	// maxText is how many bytes of a message, a reason or a name of others are shown.
	maxText = 2 << 10
	// maxRanked is how many pods are shown that would be evicted, maxImages how many
	// images, and maxRows how many of all else but pods and events.
	maxRanked = 10
	maxImages = 200
	maxRows   = 100
	// tailLines and maxLog are what is shown of a log, and maxLogBytes what of all logs
	// of a pod.
	tailLines   = 500
	maxLog      = 1 << 20
	maxLogBytes = 4 << 20
)

// functions are what the templates call.
var functions = map[string]any{"age": age, "bytes": bytesOf, "short": short, "clock": func(t time.Time) string { return t.Local().Format(time.TimeOnly) }, "inc": func(i int) int { return i + 1 }}

// overview is what page_overview.html shows.
type overview struct {
	Name     string
	Errors   []error  // of what is missing
	Node     *NodeWhy // nil: not known
	Charts   []chart
	Pods     []podRow
	More     int // pods that are not shown
	Problems []Problem
	Next     []rank.Ranked // of memory, the first would be evicted first
	Events   []v1.Event
	Images   *Images // nil: not known
}

// podRow is a pod in the overview.
type podRow struct {
	Namespace, Name string
	Path            string // of its page, below pods/
	Ready, Total    int
	Restarts        int32
	State, Age      string
	CPU, Memory     string
	Why             string
	Bad             bool
}

// chart shows values of the last hour.
type chart struct {
	Title, Last, Highest string
	Width, Height        int
	Points               string // of an SVG polyline
}

func (p *Page) overview(ctx context.Context, _ *http.Request) (title string, content any, err error) {
	a := gather(ctx, p.cfg.Agent)
	o := overview{
		Name: "node", Errors: a.errs, Node: a.node, Charts: p.charts(), More: a.more, Problems: first(a.problems, maxRows),
		Next: first(a.next, maxRanked), Events: a.events, Images: a.images,
	}
	if n := o.Node; n != nil {
		o.Name = cmp.Or(n.Name, o.Name)
		n.Conditions, n.Figures = first(n.Conditions, maxRows), first(n.Figures, maxRows)
		slices.Reverse(n.Decisions)
		n.Decisions = first(n.Decisions, maxRows)
	}
	if o.Images != nil {
		o.Images.Images = first(o.Images.Images, maxImages)
	}
	used := map[string]*statsapi.PodStats{}
	if a.summary != nil {
		for i := range a.summary.Pods {
			used[a.summary.Pods[i].PodRef.UID] = &a.summary.Pods[i]
		}
	}
	for i := range a.pods {
		pod := &a.pods[i]
		o.Pods = append(o.Pods, rowOf(pod, used[string(pod.UID)], a.whys[pod.UID]))
	}
	return o.Name, o, nil
}

// rowOf is p with what it uses and its explanation; each is nil if that is not known.
func rowOf(p *v1.Pod, used *statsapi.PodStats, why *Why) podRow {
	ready, total, restarts := podtext.Counts(p)
	r := podRow{
		Namespace: p.Namespace, Name: p.Name, Path: joinPath(p.Namespace, p.Name), Ready: ready, Total: total, Restarts: restarts,
		State: podtext.State(p), Age: podtext.Age(p, time.Now()), Bad: isBad(p, why),
	}
	if why != nil && !why.Good {
		r.Why = why.Cause
	}
	if used != nil && used.CPU != nil && used.CPU.UsageNanoCores != nil {
		r.CPU = cores(float64(*used.CPU.UsageNanoCores) / 1e9)
	}
	if used != nil && used.Memory != nil && used.Memory.WorkingSetBytes != nil {
		r.Memory = bytesOf(int64(*used.Memory.WorkingSetBytes))
	}
	return r
}

// charts returns those of the last hour; none if nothing was measured.
func (p *Page) charts() []chart {
	samples := p.history.list()
	if len(samples) == 0 {
		return nil
	}
	var c, m []float64
	for _, s := range samples {
		c, m = append(c, s.cores), append(m, s.memory)
	}
	return []chart{
		chartOf("CPU (cores)", c, cores),
		chartOf("Memory", m, func(v float64) string { return bytesOf(int64(v)) }),
	}
}

// chartOf draws values, of which those below 0 are not known.
func chartOf(title string, values []float64, show func(float64) string) chart {
	const width, height = 360, 60
	top, last := 0.0, -1.0
	for _, v := range values {
		top = max(top, v)
		if v >= 0 {
			last = v
		}
	}
	var points strings.Builder
	for i, v := range values {
		if v >= 0 && top > 0 {
			x := float64(width) * (1 - float64(len(values)-1-i)/float64(maxSamples-1))
			fmt.Fprintf(&points, "%.1f,%.1f ", x, height-1-v/top*(height-2))
		}
	}
	return chart{Title: title, Last: show(last), Highest: show(top), Width: width, Height: height, Points: points.String()}
}

// podPage is what page_pod.html shows.
type podPage struct {
	Pod              *v1.Pod
	State, Addresses string
	Why              *Why  // nil: not known
	NoWhy            error // why it is not known
	Containers       []v1.ContainerStatus
	Events           []v1.Event
	Logs             []podLog
}

// podLog is the last part of a container's log.
type podLog struct {
	Container, Path, Text string // Path is below logs/
}

func (p *Page) pod(ctx context.Context, r *http.Request) (title string, content any, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	pod, err := p.cfg.Agent.Pod(ctx, namespace, name)
	if err != nil {
		return "", nil, err
	}
	o := podPage{
		Pod: pod, State: podtext.State(pod), Addresses: addresses(pod),
		Containers: first(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), maxRows),
	}
	o.Why, o.NoWhy = p.cfg.Agent.Why(ctx, namespace, name)
	if events, err := p.cfg.Agent.Events(ctx, namespace, name); err == nil {
		slices.Reverse(events.Items)
		o.Events = first(events.Items, maxEvents)
	}
	if r.URL.Query().Has("part") {
		return name, o, nil // logs are followed, or as they were
	}
	containers := first(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), maxRows)
	for _, c := range containers {
		most := min(maxLog, maxLogBytes/len(containers))
		o.Logs = append(o.Logs, podLog{c.Name, joinPath(namespace, name, c.Name), p.tail(ctx, namespace, name, c.Name, most)})
	}
	return name, o, nil
}

// tail returns the last lines of a container's log, of which the first most bytes.
func (p *Page) tail(ctx context.Context, namespace, name, container string, most int) string {
	log, err := p.cfg.Agent.Log(ctx, namespace, name, LogOptions{Container: container, Tail: tailLines})
	if err != nil {
		return "(" + err.Error() + ")"
	}
	defer func() { _ = log.Close() }()
	b, err := io.ReadAll(io.LimitReader(log, int64(most)))
	if err != nil && len(b) == 0 {
		return "(" + err.Error() + ")"
	}
	return string(b)
}

func addresses(p *v1.Pod) string {
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return cmp.Or(strings.Join(ips, ", "), "none")
}

// joinPath makes a path of names, which may have any bytes.
func joinPath(names ...string) string {
	for i, n := range names {
		names[i] = url.PathEscape(n)
	}
	return strings.Join(names, "/")
}

// first returns the first most of list, or all if there are fewer.
func first[T any](list []T, most int) []T { return list[:min(len(list), most)] }

// short cuts s to maxText bytes.
func short(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

// age returns how long ago something was.
func age(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return duration.HumanDuration(max(time.Since(t), 0))
}

// bytesOf shows an amount of memory; "" if it is not known, which is below 0.
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

// cores shows processor time; "" if it is not known, which is below 0.
func cores(n float64) string {
	switch {
	case n < 0:
		return ""
	case n < 1:
		return strconv.Itoa(int(n*1000)) + "m"
	}
	return strconv.FormatFloat(n, 'f', 2, 64)
}
