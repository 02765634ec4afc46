package local

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/internal/podtext"
)

const (
	// tailLines and maxLog limit the lines and bytes of one log that a pod's page shows, and
	// maxLogBytes the bytes of all its logs.
	tailLines   = 500
	maxLog      = 1 << 20
	maxLogBytes = 4 << 20
	// maxYAML limits the bytes shown of a pod's YAML.
	maxYAML = 64 << 10
	// probeMemory is how long a failed probe is shown.
	probeMemory = 10 * time.Minute
)

// podPage is the input of the template of a pod's page.
type podPage struct {
	Pod         *v1.Pod
	Row         podRow
	At          time.Time
	Facts       []string
	Why         *Why  // nil: not known
	NoWhy       error // why it is not known
	Charts      []chart
	Containers  []container
	Life        []moment
	NoLife      error // why its events are unknown
	Volumes     []podtext.Field
	Labels      []podtext.Field
	Annotations []podtext.Field
	YAML        string   // of the pod, without values that may be secret
	Commands    []string // for a terminal
	Logs        []podLog // nil in the part that a script reloads
	Timeline    *timeline
	HasPast     bool // the page has a timeline, to which its navigation links
}

// Live returns the data with which a script updates the page.
func (o podPage) Live() live { return live{Title: o.Pod.Name + ": " + o.Row.State} }

// container is what a pod's page shows of one container, in words.
type container struct {
	Name, Kind, Image  string
	Class, State, Last string
	Ready              bool
	Restarts           int32
	Uses               []use
	Probes             []probeState
	Spec, Env, Mounts  []podtext.Field
	EnvNames           string
}

// use is a container's usage of a resource, and its limit.
type use struct {
	Name, Used, Request, Limit string
	Width                      int64 // percent of the limit; below 0: there is no limit
	High                       bool
}

// probeState is a probe with its last result.
type probeState struct{ Name, Check, Result, Class string }

// moment is an event in the history of a pod.
type moment struct {
	At                time.Time
	Count             int32
	Class, What, Text string
}

// podLog is the last part of a container's log.
type podLog struct {
	Container, Path, Text string // Path is below logs/
}

func (p *Page) pod(ctx context.Context, r *http.Request) (content, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	pod, err := p.cfg.Agent.Pod(ctx, namespace, name)
	if err != nil {
		return p.past(r, namespace, name, err)
	}
	o := podPage{Pod: pod, At: time.Now(), HasPast: p.cfg.Past != nil}
	if o.Why, o.NoWhy = p.cfg.Agent.Why(ctx, namespace, name); o.NoWhy != nil {
		o.Why = nil
	}
	var events []v1.Event
	if all, err := p.cfg.Agent.Events(ctx, namespace, name); err == nil {
		events = all.Items
	} else {
		o.NoLife = err
	}
	var used *statsapi.PodStats
	if sum, err := p.cfg.Agent.Summary(ctx, true); err == nil {
		for i := range sum.Pods {
			if sum.Pods[i].PodRef.UID == string(pod.UID) {
				used = &sum.Pods[i]
			}
		}
	}
	o.Row = rowOf(pod, used, o.Why, podtext.EvictionsOf(events)[pod.UID], o.At)
	o.Facts = podFacts(pod, o.Why)
	if h, err := p.cfg.Agent.History(ctx); err == nil {
		o.Charts = podCharts(pod, h, o.At)
	}
	o.Containers = containersOf(pod, used, events, o.At)
	o.Life = lifeOf(pod, events)
	for i := range first(pod.Spec.Volumes, maxRows) {
		o.Volumes = append(o.Volumes, podtext.Field{Name: pod.Spec.Volumes[i].Name, Value: podtext.Volume(&pod.Spec.Volumes[i])})
	}
	o.YAML = cutTo(yamlOf(pod), maxYAML)
	o.Labels, o.Annotations = fieldsOf(pod.Labels), fieldsOf(pod.Annotations)
	if plainNames(namespace, name) { // other names could be changed by a shell
		for _, c := range []string{"why", "describe pod", "logs -f"} {
			o.Commands = append(o.Commands, fmt.Sprintf("agent %s %s -n %s", c, name, namespace))
		}
		o.Commands = append(o.Commands, fmt.Sprintf("agent exec -it %s -n %s -- sh", name, namespace))
	}
	if r.URL.Query().Has("part") {
		return o, nil // the script reloads neither logs nor the timeline
	}
	o.Timeline = p.timeline(r, namespace, name)
	containers := first(allContainers(pod), maxRows)
	for _, c := range containers {
		most := min(maxLog, maxLogBytes/len(containers))
		o.Logs = append(o.Logs, podLog{c.Name, joinPath(namespace, name, c.Name), p.tail(ctx, namespace, name, c.Name, most)})
	}
	return o, nil
}

// plainNames reports whether all names are valid names of Kubernetes.
func plainNames(names ...string) bool {
	return !slices.ContainsFunc(names, func(s string) bool {
		return s == "" || len(s) > 253 || s[0] == '-' || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") != ""
	})
}

// allContainers returns the containers of a pod. Those that start last come first, since
// people usually look for these.
func allContainers(p *v1.Pod) []v1.Container {
	all := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	for i := range p.Spec.EphemeralContainers {
		all = append(all, v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// hidden stands for a value that may be secret.
const hidden = "(not shown)"

// yamlOf returns the metadata and the spec of a pod as YAML. Values that may be secret are hidden:
// environment variables, headers and volume attributes.
func yamlOf(pod *v1.Pod) string {
	p := pod.DeepCopy()
	p.TypeMeta = podType
	p.ManagedFields, p.Status = nil, v1.PodStatus{}
	delete(p.Annotations, v1.LastAppliedConfigAnnotation)
	headers := func(h *v1.HTTPGetAction) {
		if h != nil {
			for i := range h.HTTPHeaders {
				h.HTTPHeaders[i].Value = hidden
			}
		}
	}
	hide := func(c *v1.Container) {
		for i := range c.Env {
			if c.Env[i].Value != "" {
				c.Env[i].Value = hidden
			}
		}
		for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if probe != nil {
				headers(probe.HTTPGet)
			}
		}
		if l := c.Lifecycle; l != nil {
			for _, h := range []*v1.LifecycleHandler{l.PostStart, l.PreStop} {
				if h != nil {
					headers(h.HTTPGet)
				}
			}
		}
	}
	for i := range p.Spec.InitContainers {
		hide(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		hide(&p.Spec.Containers[i])
	}
	for i := range p.Spec.EphemeralContainers {
		hide((*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.CSI != nil {
			hideAll(v.CSI.VolumeAttributes)
		}
		if v.FlexVolume != nil {
			hideAll(v.FlexVolume.Options)
		}
	}
	b, err := yaml.Marshal(struct {
		metav1.TypeMeta `json:",inline"`

		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     v1.PodSpec        `json:"spec"`
	}{p.TypeMeta, p.ObjectMeta, p.Spec})
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func hideAll(values map[string]string) {
	for name := range values {
		values[name] = hidden
	}
}

func podFacts(p *v1.Pod, why *Why) (all []string) {
	add := func(before, s string) {
		if s != "" {
			all = append(all, before+s)
		}
	}
	add("", addresses(p))
	if p.Spec.HostNetwork {
		add("", "in the node's network")
	}
	add("", string(p.Status.QOSClass))
	add("priority ", p.Spec.PriorityClassName)
	add("restarts ", string(p.Spec.RestartPolicy))
	if why != nil {
		add("", why.Manifest)
	}
	return all
}

// fieldsOf returns the entries of a map, sorted by name.
func fieldsOf(m map[string]string) (all []podtext.Field) {
	for name, value := range m {
		all = append(all, podtext.Field{Name: name, Value: value})
	}
	slices.SortFunc(all, func(a, b podtext.Field) int { return cmp.Compare(a.Name, b.Name) })
	return first(all, maxRows)
}

// podCharts returns the charts of a pod. Their limits are the sums of its containers' limits.
func podCharts(p *v1.Pod, h *Usage, now time.Time) (all []chart) {
	u := h.Pods[string(p.UID)]
	for _, c := range []plot{
		{title: "CPU", lines: []series{{"", u.CPU}}, limit: limitOf(p, v1.ResourceCPU), show: millis},
		{title: "Memory", lines: []series{{"", u.Memory}}, limit: limitOf(p, v1.ResourceMemory), show: bytesOf},
	} {
		c.times, c.limitText = h.Times, "limit"
		if drawn, ok := chartOf(c, now); ok {
			all = append(all, drawn)
		}
	}
	return all
}

// limitOf returns the sum of the limits of a pod's containers; 0 if one has no limit.
func limitOf(p *v1.Pod, name v1.ResourceName) (sum int64) {
	for i := range p.Spec.Containers {
		q, ok := p.Spec.Containers[i].Resources.Limits[name]
		if !ok {
			return 0
		}
		sum += amount(name, q)
	}
	return sum
}

// amount returns a quantity in the unit of measurement: thousandths for CPUs.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func containersOf(p *v1.Pod, used *statsapi.PodStats, events []v1.Event, now time.Time) (all []container) {
	statuses := map[string]*v1.ContainerStatus{}
	for _, list := range [][]v1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			statuses[list[i].Name] = &list[i]
		}
	}
	containers := allContainers(p)
	for i := range first(containers, maxRows) {
		c := &containers[i]
		out := container{Name: c.Name, Image: c.Image, State: "not made yet"}
		switch n := len(p.Spec.Containers); {
		case i >= n+len(p.Spec.InitContainers):
			out.Kind = "ephemeral"
		case i >= n && c.RestartPolicy != nil:
			out.Kind = "sidecar"
		case i >= n:
			out.Kind = "init"
		}
		s := cmp.Or(statuses[c.Name], &v1.ContainerStatus{})
		out.Ready, out.Restarts = s.Ready, s.RestartCount
		out.State, out.Class = stateOf(s.State, now)
		if out.Kind == "" && s.State.Running != nil && !s.Ready {
			out.Class = "bad"
		}
		if t := s.LastTerminationState.Terminated; t != nil {
			out.Last = endText(t)
		}
		for _, f := range podtext.ContainerSpec(c) {
			switch f.Name {
			case "Requests", "Limits": // shown with the usage
			case "Liveness", "Readiness", "Startup":
				out.Probes = append(out.Probes, probeOf(f, s, c.Name, events, now))
			default:
				out.Spec = append(out.Spec, f)
			}
		}
		var names []string
		for i := range c.Env {
			names = append(names, c.Env[i].Name)
		}
		out.EnvNames = strings.Join(names, ", ")
		for i := range first(c.VolumeMounts, maxRows) {
			out.Mounts = append(out.Mounts, podtext.Field{Name: c.VolumeMounts[i].MountPath, Value: podtext.Mount(&c.VolumeMounts[i])})
		}
		out.Uses = usesOf(c, used)
		all = append(all, out)
	}
	return all
}

// stateOf returns a container's state in words, and its class.
func stateOf(s v1.ContainerState, now time.Time) (text, class string) {
	switch {
	case s.Running != nil:
		return "running since " + clock(s.Running.StartedAt.Time) + ", for " + duration.HumanDuration(now.Sub(s.Running.StartedAt.Time)), "ok"
	case s.Terminated != nil && s.Terminated.ExitCode == 0:
		return endText(s.Terminated), "done"
	case s.Terminated != nil:
		return endText(s.Terminated), "bad"
	case s.Waiting != nil && s.Waiting.Reason != "":
		if slices.Contains([]string{"ContainerCreating", "PodInitializing"}, s.Waiting.Reason) {
			return "waits: " + s.Waiting.Reason, "starting"
		}
		return strings.TrimSuffix("waits: "+s.Waiting.Reason+": "+s.Waiting.Message, ": "), "bad"
	default:
		return "not made yet", "starting"
	}
}

// endText describes the end of a container.
func endText(t *v1.ContainerStateTerminated) string {
	s := fmt.Sprintf("ended with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		s += " (" + t.Reason + ")"
	}
	if !t.FinishedAt.IsZero() {
		s += " at " + clock(t.FinishedAt.Time)
		if d := t.FinishedAt.Sub(t.StartedAt.Time); !t.StartedAt.IsZero() && d >= time.Second {
			s += ", after " + duration.HumanDuration(d)
		}
	}
	if t.Message != "" {
		s += ": " + t.Message
	}
	return s
}

// probeOf returns a probe with its last result, according to the status and the events.
func probeOf(f podtext.Field, s *v1.ContainerStatus, name string, events []v1.Event, now time.Time) probeState {
	p := probeState{Name: f.Name, Check: f.Value}
	if s.State.Running == nil {
		p.Result = "not asked: the container does not run"
		return p
	}
	switch {
	case f.Name == "Readiness" && s.Ready, f.Name == "Startup" && s.Started != nil && *s.Started:
		p.Result, p.Class = "succeeds", "ok"
	case f.Name == "Readiness", f.Name == "Startup":
		p.Result, p.Class = "does not succeed", "bad"
	}
	for i := range events {
		e := &events[i]
		if e.Reason == "Unhealthy" && strings.HasPrefix(e.Message, f.Name) && strings.Contains(e.InvolvedObject.FieldPath, "{"+name+"}") && now.Sub(e.LastTimestamp.Time) < probeMemory {
			p.Result = strings.TrimPrefix(fmt.Sprintf("%s; failed %d times, last %s ago: %s", p.Result, max(e.Count, 1), age(e.LastTimestamp.Time), e.Message), "; ")
			p.Class = cmp.Or(p.Class, "starting")
		}
	}
	if p.Result == "" {
		p.Result, p.Class = "succeeds", "ok"
	}
	return p
}

// usesOf returns a container's usage of its resources.
func usesOf(c *v1.Container, pod *statsapi.PodStats) []use {
	cpu, memory := int64(-1), int64(-1)
	if pod != nil {
		for i := range pod.Containers {
			if pod.Containers[i].Name == c.Name {
				cpu, memory = used(pod.Containers[i].CPU, pod.Containers[i].Memory)
			}
		}
	}
	var all []use
	for _, r := range []struct {
		title string
		name  v1.ResourceName
		used  int64
		show  func(int64) string
	}{{"CPU", v1.ResourceCPU, cpu, millis}, {"Memory", v1.ResourceMemory, memory, bytesOf}} {
		u := use{Name: r.title, Used: cmp.Or(r.show(r.used), "not known"), Request: "none", Limit: "none", Width: -1}
		if q, ok := c.Resources.Requests[r.name]; ok {
			u.Request = r.show(amount(r.name, q))
		}
		if q, ok := c.Resources.Limits[r.name]; ok {
			most := amount(r.name, q)
			u.Limit = r.show(most)
			if most > 0 && r.used >= 0 {
				u.Width, u.High = min(100, r.used*100/most), r.used*100/most >= 90
			}
		}
		all = append(all, u)
	}
	return all
}

// lifeOf returns the history of a pod, newest first.
func lifeOf(p *v1.Pod, events []v1.Event) []moment {
	var all []moment
	add := func(at time.Time, class, what, text string) {
		if !at.IsZero() {
			all = append(all, moment{at, 1, class, what, text})
		}
	}
	add(p.CreationTimestamp.Time, "", "Created", "")
	if t := p.DeletionTimestamp; t != nil {
		add(t.Time, "ending", "Ends by", "")
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range first(list, maxRows) {
			for _, s := range []v1.ContainerState{list[i].State, list[i].LastTerminationState} {
				if t := s.Terminated; t != nil {
					class := "bad"
					if t.ExitCode == 0 {
						class = "done"
					}
					add(t.FinishedAt.Time, class, fmt.Sprintf("Exit code %d", t.ExitCode), "container "+list[i].Name+" "+endText(t))
				}
				if s.Running != nil {
					add(s.Running.StartedAt.Time, "ok", "Running", "container "+list[i].Name+" runs since then")
				}
			}
		}
	}
	for i := range events {
		e := &events[i]
		class := ""
		if e.Type == v1.EventTypeWarning {
			class = "bad"
		}
		all = append(all, moment{e.LastTimestamp.Time, max(e.Count, 1), class, e.Reason, e.Message})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return b.At.Compare(a.At) })
	return first(all, maxEvents)
}

// tail returns the last lines of a container's log, at most the given number of bytes.
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
