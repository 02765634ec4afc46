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
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/podtext"
)

// maxRanked is how many pods are shown that would be evicted, and maxImages how many
// images.
const (
	maxRanked = 10
	maxImages = 200
)

func (p *Page) overview(ctx context.Context, _ *http.Request) (string, *builder, error) {
	o := gather(ctx, p.cfg.Agent)
	b := &builder{}
	name := "node"
	if o.node != nil {
		name = cmp.Or(o.node.Name, name)
	}
	b.raw("<h1>%s</h1>\n", name)
	for _, err := range o.errs {
		b.raw(`<p class="bad">Not known: %s</p>`+"\n", err.Error())
	}
	b.node(o)
	p.charts(b)
	b.pods(o)
	b.problems(o)
	b.evictions(o)
	b.events(o.events)
	b.images(o)
	return name, b, nil
}

func (b *builder) node(o *overview) {
	if o.node == nil {
		return
	}
	b.raw("<section id=\"node\"><ul class=\"facts\">")
	for _, c := range o.node.Conditions {
		good := (c.Status == v1.ConditionTrue) == (c.Type == v1.NodeReady)
		class := "good"
		if !good {
			class = "bad"
		}
		b.raw(`<li class="%s" title="%s">%s %s</li>`, class, c.Message, string(c.Type), string(c.Status))
	}
	if o.node.ShuttingDown {
		b.raw(`<li class="bad">shutting down</li>`)
	}
	b.raw("</ul>\n")
	if o.node.Runtime != "" {
		b.raw("<p>Runtime %s; network %s</p>\n", o.node.Runtime, cmp.Or(o.node.Network, "the runtime's"))
	}
	b.raw("</section>\n")
}

func (p *Page) charts(b *builder) {
	samples := p.history.list()
	if len(samples) == 0 {
		return
	}
	var c, m []float64
	for _, s := range samples {
		c, m = append(c, s.cores), append(m, s.memory)
	}
	b.raw(`<section id="hour"><h2>Last hour</h2>`)
	b.chart("CPU (cores)", c, cores)
	b.chart("Memory", m, bytesOf)
	b.raw("</section>\n")
}

func (b *builder) pods(o *overview) {
	b.raw(`<section id="pods"><h2>Pods</h2>`)
	if len(o.pods) == 0 {
		b.raw("<p>There are none.</p></section>\n")
		return
	}
	used := map[string]statsapi.PodStats{}
	if o.summary != nil {
		for _, s := range o.summary.Pods {
			used[s.PodRef.UID] = s
		}
	}
	b.table("pods", "Namespace", "Name", "Ready", "Status", "Restarts", "Age", "CPU", "Memory", "Waits for")
	for i := range o.pods {
		b.podRow(&o.pods[i], used, o.whys)
	}
	b.end()
	if o.more > 0 {
		b.raw("<p>%s more are not shown.</p>", strconv.Itoa(o.more))
	}
	b.raw("</section>\n")
}

func (b *builder) podRow(p *v1.Pod, used map[string]statsapi.PodStats, whys map[string]string) {
	ready, total, restarts := podtext.Counts(p)
	c, m := -1.0, -1.0
	if s, ok := used[string(p.UID)]; ok {
		if s.CPU != nil && s.CPU.UsageNanoCores != nil {
			c = float64(*s.CPU.UsageNanoCores) / 1e9
		}
		if s.Memory != nil && s.Memory.WorkingSetBytes != nil {
			m = float64(*s.Memory.WorkingSetBytes)
		}
	}
	class := ""
	if settled(p) == 0 {
		class = "bad"
	}
	b.raw(`<tr class="%s"><td>%s</td><td><a href="%s">%s</a></td>`, class, p.Namespace, podURL(p), p.Name)
	for _, cell := range []string{
		fmt.Sprintf("%d/%d", ready, total), podtext.State(p), strconv.Itoa(int(restarts)), podtext.Age(p, time.Now()),
		cores(c), bytesOf(m), whys[p.Namespace+"/"+p.Name],
	} {
		b.raw("<td>%s</td>", cell)
	}
	b.raw("</tr>\n")
}

// podURL is relative to the overview: the page may stand below any path.
func podURL(p *v1.Pod) string {
	return "pods/" + url.PathEscape(p.Namespace) + "/" + url.PathEscape(p.Name)
}

func (b *builder) problems(o *overview) {
	if len(o.problems) == 0 {
		return
	}
	b.raw(`<section id="problems"><h2>Manifests with mistakes</h2>`)
	b.table("problems", "File", "Pod", "Field", "Mistake", "In effect")
	for _, p := range o.problems {
		kept := "nothing of it"
		if p.Kept {
			kept = "the version before"
		}
		b.row("bad", cmp.Or(p.File, p.Source), p.Pod, p.Field, p.Reason, kept)
	}
	b.end()
	b.raw("</section>\n")
}

func (b *builder) evictions(o *overview) {
	if o.node != nil && len(o.node.Figures) > 0 {
		b.raw(`<section id="pressure"><h2>Pressure</h2>`)
		b.table("figures", "Signal", "Available", "Of", "Threshold", "")
		for _, f := range o.node.Figures {
			class, said := "", ""
			if f.Met {
				class, said = "bad", "met for "+age(f.Since)
			}
			b.row(class, f.Signal, f.Available, f.Capacity, f.Threshold, said)
		}
		b.end()
		for _, d := range slices.Backward(o.node.Decisions) {
			b.raw("<p>%s ago, %s: %s</p>", age(d.Time), d.What, d.Outcome)
		}
		b.raw("</section>\n")
	}
	if len(o.next) == 0 {
		return
	}
	b.raw(`<section id="next"><h2>Evicted next</h2><p>If the node ran short of memory, in this order.</p>`)
	b.table("next", "", "Pod", "Uses", "Requests", "Priority", "Why")
	for i, r := range o.next[:min(len(o.next), maxRanked)] {
		why := "uses no more than it requests"
		if r.Exceeds {
			why = "uses more than it requests"
		}
		b.row("", strconv.Itoa(i+1), r.Pod.Namespace+"/"+r.Pod.Name, bytesOf(float64(r.Used)), bytesOf(float64(r.Request)), strconv.Itoa(int(r.Priority)), why)
	}
	b.end()
	b.raw("</section>\n")
}

func (b *builder) events(list []v1.Event) {
	if len(list) == 0 {
		return
	}
	b.raw(`<section id="events"><h2>Events</h2>`)
	b.table("events", "Last", "Count", "Type", "Reason", "Object", "Message")
	for i := range list {
		e := &list[i]
		class := ""
		if e.Type == v1.EventTypeWarning {
			class = "bad"
		}
		b.row(class, age(e.LastTimestamp.Time), strconv.Itoa(int(max(e.Count, 1))), e.Type, e.Reason, e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, e.Message)
	}
	b.end()
	b.raw("</section>\n")
}

func (b *builder) images(o *overview) {
	if o.images == nil {
		return
	}
	b.raw(`<section id="images"><h2>Images</h2><p>%s</p>`, o.images.Summary)
	b.table("images", "Image", "Size", "Verdict", "Why", "Last used")
	for _, i := range o.images.Images[:min(len(o.images.Images), maxImages)] {
		b.row("", i.Name, bytesOf(float64(i.Size)), i.Verdict, i.Why, age(i.LastUsed))
	}
	b.end()
	b.raw("</section>\n")
}

// pod is the page of one pod.
func (p *Page) pod(ctx context.Context, r *http.Request) (string, *builder, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	pod, err := p.cfg.Agent.Pod(ctx, namespace, name)
	if err != nil {
		return "", nil, err
	}
	b := &builder{}
	b.raw(`<p><a href="../../">All pods</a></p><h1>%s/%s</h1><p>%s; %s; addresses %s</p>`, namespace, name, podtext.State(pod), string(pod.Status.QOSClass), addresses(pod))
	if why, err := p.cfg.Agent.Why(ctx, namespace, name); err != nil {
		b.raw(`<p class="bad">Not known: %s</p>`, err.Error())
	} else {
		b.raw(`<section id="why"><h2>Why</h2><p>%s since %s ago.</p>`, why.Stage, age(why.Since))
		for _, line := range [][2]string{{"Doing", why.Doing}, {"Waits for", why.WaitingFor}, {"Last error", why.LastError}} {
			if line[1] != "" {
				b.raw("<p>%s: %s</p>", line[0], line[1])
			}
		}
		b.raw("</section>")
	}
	b.raw(`<section id="containers"><h2>Containers</h2>`)
	b.table("containers", "Name", "Image", "State", "Ready", "Restarts", "")
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		b.row("", s.Name, s.Image, state(s.State), strconv.FormatBool(s.Ready), strconv.Itoa(int(s.RestartCount)), last(s.LastTerminationState))
	}
	b.end()
	b.raw("</section>")
	if events, err := p.cfg.Agent.Events(ctx, namespace, name); err == nil {
		slices.Reverse(events.Items)
		b.events(events.Items[:min(len(events.Items), maxEvents)])
	}
	if r.URL.Query().Has("part") {
		return name, b, nil // logs are followed, or as they were
	}
	b.raw("<!--logs-->")
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		path := "../../logs/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/" + url.PathEscape(c.Name)
		b.raw(`<section class="log" data-log="%s"><h2>Log of %s <a href="%s?tail=100000">more</a> <a href="%s?previous">of the one before</a></h2><pre>%s</pre></section>`,
			path, c.Name, path, path, p.tail(ctx, namespace, name, c.Name))
	}
	return name, b, nil
}

func addresses(p *v1.Pod) string {
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return cmp.Or(strings.Join(ips, ", "), "none")
}

func state(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running for " + age(s.Running.StartedAt.Time)
	case s.Terminated != nil:
		return fmt.Sprintf("ended %s ago with %d (%s)", age(s.Terminated.FinishedAt.Time), s.Terminated.ExitCode, s.Terminated.Reason)
	case s.Waiting != nil:
		return strings.TrimSpace("waiting: " + s.Waiting.Reason + " " + s.Waiting.Message)
	}
	return "waiting"
}

func last(s v1.ContainerState) string {
	if s.Terminated == nil {
		return ""
	}
	return "the one before " + state(s)
}
