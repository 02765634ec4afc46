package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podstatus"
)

// container is a container of the pod with its status.
type container struct {
	spec *v1.Container
	st   *v1.ContainerStatus
	path string // path of the field in the manifest
	init bool   // later containers wait for its end
}

// name returns the container's name for sentences.
func (c *container) name() string {
	if c.init {
		return "init container " + c.spec.Name
	}
	return "container " + c.spec.Name
}

// each calls visit for the containers that have a status, init containers first, until visit
// returns true. It reports whether visit returned true.
func (e *explanation) each(visit func(*container) bool) bool {
	for _, group := range []struct {
		field string
		specs []v1.Container
		list  []v1.ContainerStatus
	}{
		{"initContainers", e.Pod.Spec.InitContainers, e.Pod.Status.InitContainerStatuses},
		{"containers", e.Pod.Spec.Containers, e.Pod.Status.ContainerStatuses},
	} {
		for i := range group.specs {
			spec := &group.specs[i]
			n := slices.IndexFunc(group.list, func(s v1.ContainerStatus) bool { return s.Name == spec.Name })
			if n < 0 {
				continue
			}
			c := &container{spec: spec, st: &group.list[n], path: fmt.Sprintf("spec.%s[%d]", group.field, i)}
			c.init = group.field == "initContainers" && !podmeta.IsSidecar(spec)
			if visit(c) {
				return true
			}
		}
	}
	return false
}

// containers explains a pod by its first container with a problem, and reports whether there is
// one. Problems of other containers are added as evidence.
func (e *explanation) containers() bool {
	found := false
	e.each(func(c *container) bool {
		if !found {
			found = e.broken(c)
			// Later containers start only after an init container has ended.
			return found && c.init
		}
		other := &explanation{Facts: e.Facts}
		if other.broken(c) {
			e.evidence("and %s", other.why.Cause)
		}
		return false
	})
	return found
}

// broken explains a container with a problem, and reports whether it has one.
func (e *explanation) broken(c *container) bool {
	switch s := c.st; {
	case s.State.Waiting != nil:
		return e.waiting(c, s.State.Waiting)
	case s.State.Terminated != nil:
		t := s.State.Terminated
		if t.ExitCode == 0 && (c.init || !e.restarts(c)) {
			return false
		}
		state := doesntRun
		if !c.init && !e.restarts(c) {
			state = notReady
		}
		e.tellEnd(state, c, t, false)
		return true
	case s.State.Running == nil:
		return false
	case c.init:
		e.initRuns(c)
		return true
	case c.spec.StartupProbe != nil && (s.Started == nil || !*s.Started):
		e.failsProbe(c, "Startup", c.spec.StartupProbe, notUp, "has not succeeded yet")
		return true
	case !s.Ready && c.spec.ReadinessProbe != nil:
		e.failsProbe(c, "Readiness", c.spec.ReadinessProbe, notReady, "has not succeeded")
		return true
	default:
		return false
	}
}

// restarts reports whether a container is started again after an end with success.
func (e *explanation) restarts(c *container) bool {
	if p := c.spec.RestartPolicy; p != nil {
		return *p == v1.ContainerRestartPolicyAlways
	}
	return cmp.Or(e.Pod.Spec.RestartPolicy, v1.RestartPolicyAlways) == v1.RestartPolicyAlways
}

// initRuns explains a pod that waits for the end of an init container.
func (e *explanation) initRuns(c *container) {
	var after []string
	for i := range e.Pod.Spec.Containers {
		after = append(after, e.Pod.Spec.Containers[i].Name)
	}
	e.why.WaitingFor, e.why.NextAt = "the end of "+c.name(), time.Time{}
	e.because(notUp, "%s has been running for %s; %s begins after its end", c.name(), spell(e.Now.Sub(c.st.State.Running.StartedAt.Time)), strings.Join(after, ", "))
	e.words(c, false)
	e.do("%s -f", e.logs(c, false))
}

// waiting explains a container that has not started. It returns false if the container is still
// being prepared.
func (e *explanation) waiting(c *container, w *v1.ContainerStateWaiting) bool {
	switch podlife.Kind(w.Reason) {
	case "", "ContainerCreating", "PodInitializing":
		return false
	case podlife.CrashLoop:
		e.why.Next = "next start"
		t, failed := c.st.LastTerminationState.Terminated, e.startFailure(c)
		switch {
		case failed != nil && (t == nil || failed.LastTimestamp.After(t.FinishedAt.Time.Add(-time.Second))):
			e.cannotStart(c, strings.TrimPrefix(failed.Message, startFailed))
		case t != nil:
			e.tellEnd(doesntRun, c, t, false)
		default:
			e.because(doesntRun, "%s ends again and again: %s", c.name(), shown(w.Message))
		}
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		e.noImage(c, w)
	case podlife.ConfigFailed:
		e.because(doesntRun, "%s cannot be made: %s", c.name(), shown(w.Message))
		e.absent(w.Message)
	case podlife.HookFailed:
		e.because(doesntRun, "%s was ended, as its postStart hook failed: %s", c.name(), shown(w.Message))
		e.edit(c.path+".lifecycle.postStart", "")
	default:
		e.cannotStart(c, cmp.Or(w.Message, w.Reason))
	}
	e.why.Next = cmp.Or(e.why.Next, "next try")
	e.why.WaitingFor = cmp.Or(e.why.WaitingFor, fmt.Sprintf("the next start of %s", c.name()))
	return true
}

// cannotStart explains a container that the runtime cannot create or start.
func (e *explanation) cannotStart(c *container, why string) {
	e.because(doesntRun, "%s cannot be started: %s", c.name(), shown(why))
	if c.st.RestartCount > 0 {
		e.evidence("it was tried %d times", c.st.RestartCount+1)
	}
	if command := slices.Concat(c.spec.Command, c.spec.Args); len(command) > 0 {
		e.evidence("its command is %s", strings.Join(command, " "))
		e.edit(c.path+".command", "")
	} else {
		e.edit(c.path, "")
	}
}

// startFailed begins the message of an event about a failed start.
const startFailed = "Error: "

// startFailure returns the event of the last failed start of a container, or nil.
func (e *explanation) startFailure(c *container) *v1.Event {
	return e.last(c, func(ev *v1.Event) bool {
		// Events about failed pulls have only this reason.
		return ev.Reason == "Failed" && strings.HasPrefix(ev.Message, startFailed) && strings.ContainsRune(strings.TrimPrefix(ev.Message, startFailed), ' ')
	})
}

// last returns the newest event of a container for which match returns true. It returns nil if
// there is none.
func (e *explanation) last(c *container, match func(*v1.Event) bool) *v1.Event {
	for i := len(e.Events) - 1; i >= 0; i-- {
		if ev := &e.Events[i]; e.of(ev, c) && match(ev) {
			return ev
		}
	}
	return nil
}

// of reports whether an event is about a container.
func (e *explanation) of(ev *v1.Event, c *container) bool {
	return ev.InvolvedObject.FieldPath == podmeta.FieldPath(e.Pod, c.spec.Name)
}

// tellEnd explains the end of a container. If past is true, the container runs again, and t is the
// end of its previous instance.
func (e *explanation) tellEnd(state string, c *container, t *v1.ContainerStateTerminated, past bool) {
	n := c.st.RestartCount
	if !past {
		n++
	}
	often := fmt.Sprintf("%d times, last after %s at %s,", n, e.lived(t), clock(t.FinishedAt.Time))
	if n <= 1 {
		often = fmt.Sprintf("after %s at %s", e.lived(t), clock(t.FinishedAt.Time))
	}
	e.words(c, past)
	logs := func() { e.do("%s", e.logs(c, past)) }
	switch kind := e.endedFor(t); {
	case t.Reason == "OOMKilled":
		limit := c.spec.Resources.Limits[v1.ResourceMemory]
		if limit.IsZero() {
			e.because(state, "%s was killed %s as the memory that it may use was full", c.name(), often)
		} else {
			e.because(state, "%s was killed %s for using more than its memory limit of %s", c.name(), often, limit.String())
		}
		if ev := e.last(c, isOOM); ev != nil {
			e.evidence("%s", ev.Message)
		} else if i := slices.IndexFunc(e.Events, func(ev v1.Event) bool { return isOOM(&ev) }); i >= 0 {
			e.evidence("%s", e.Events[i].Message)
		}
		e.edit(c.path+".resources.limits.memory", "")
	case kind == podlife.LivenessFailed:
		e.because(state, "%s was ended %s as its liveness probe failed", c.name(), often)
		e.probed(c, "Liveness", c.spec.LivenessProbe)
		logs()
		e.edit(c.path+".livenessProbe", "")
	case kind == podlife.StartupFailed:
		e.because(state, "%s was ended %s as its startup probe failed", c.name(), often)
		e.probed(c, "Startup", c.spec.StartupProbe)
		logs()
		e.edit(c.path+".startupProbe", "")
	case kind == podlife.HookFailed:
		e.because(state, "%s was ended %s as its postStart hook failed", c.name(), often)
		e.edit(c.path+".lifecycle.postStart", "")
	case kind != "":
		e.because(state, "%s was ended %s: %s", c.name(), often, kindWords[kind])
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		e.cannotStart(c, cmp.Or(t.Message, t.Reason))
	case t.ExitCode == 0:
		e.because(state, "%s has ended %s by itself, with exit code 0", c.name(), often)
		logs()
		if e.restarts(c) {
			e.do("let its program go on, or set spec.restartPolicy to OnFailure or Never, if it is to run once")
		}
	default:
		e.because(state, "%s has ended %s with exit code %d%s", c.name(), often, t.ExitCode, signal(t))
		e.port(c)
		logs()
		e.edit(c.path, "")
	}
}

func isOOM(ev *v1.Event) bool { return ev.Reason == "OOMKilling" }

// lived returns how long an instance ran.
func (e *explanation) lived(t *v1.ContainerStateTerminated) string {
	if t.StartedAt.IsZero() || t.FinishedAt.Before(&t.StartedAt) {
		return "less than 1s"
	}
	return spell(t.FinishedAt.Sub(t.StartedAt.Time))
}

// endedFor returns the reason why the agent stopped an instance. It returns "" if the agent did
// not stop it.
func (e *explanation) endedFor(t *v1.ContainerStateTerminated) podlife.Kind {
	if e.EndedFor == nil {
		return ""
	}
	return e.EndedFor(podstatus.BareID(t.ContainerID))
}

// words adds the last log line of a container as evidence. If previous is set, it is the
// last line of the previous instance.
func (e *explanation) words(c *container, previous bool) {
	if words := e.lastWords(c, previous); words != "" {
		e.evidence("its last words: %s", words)
	}
}

func (e *explanation) lastWords(c *container, previous bool) string {
	t := c.st.State.Terminated
	if t == nil {
		t = c.st.LastTerminationState.Terminated
	}
	if t != nil && t.Message != "" && !c.init {
		return shortened(t.Message)
	}
	if e.LastWords == nil {
		return ""
	}
	return shortened(e.LastWords(c.spec.Name, previous))
}

// port adds the process that has the port of a container, if the container's last log line reports
// a taken port.
func (e *explanation) port(c *container) {
	words := strings.ToLower(e.lastWords(c, false))
	if e.Holder == nil || !strings.Contains(words, "address") || !strings.Contains(words, "in use") {
		return
	}
	if !e.Pod.Spec.HostNetwork {
		e.evidence("another container of the pod listens at the port")
		return
	}
	for _, port := range portsOf(c.spec, words) {
		if who := e.Holder(port); who != "" {
			e.evidence("port %d of the node is held by %s", port, who)
			e.do("end what holds the port, or leave out spec.hostNetwork")
			return
		}
	}
}

// failsProbe explains a container whose probe does not succeed.
func (e *explanation) failsProbe(c *container, name string, p *v1.Probe, state, quiet string) {
	e.why.WaitingFor = fmt.Sprintf("the %s probe of %s", strings.ToLower(name), c.name())
	n, since, last := e.failures(c, name)
	if n == 0 {
		e.because(state, "the %s probe of %s %s since its start at %s", strings.ToLower(name), c.name(), quiet, clock(c.st.State.Running.StartedAt.Time))
		e.evidence("it asks %s", e.target(p))
	} else {
		e.because(state, "the %s probe of %s has failed %s", strings.ToLower(name), c.name(), times(n, since, e.Now))
		e.evidence("%s", e.found(p, last))
	}
	e.why.Next = "next probe"
	e.why.NextAt = time.Time{}
	e.do("%s", e.logs(c, false))
	field := strings.ToLower(name) + "Probe"
	e.edit(c.path+"."+field, "")
}

// probed adds the last result of a probe as evidence.
func (e *explanation) probed(c *container, name string, p *v1.Probe) {
	if p == nil {
		return
	}
	if n, _, last := e.failures(c, name); n > 0 {
		e.evidence("%s", e.found(p, last))
		return
	}
	e.evidence("it asks %s", e.target(p))
}

// failures returns how often a probe has failed, since when, and its last result.
func (e *explanation) failures(c *container, probe string) (n int32, since time.Time, last string) {
	for i := range e.Events {
		ev := &e.Events[i]
		rest, ok := strings.CutPrefix(ev.Message, probe+" probe ")
		if !ok || ev.Reason != "Unhealthy" || !e.of(ev, c) {
			continue
		}
		if n == 0 || ev.FirstTimestamp.Time.Before(since) {
			since = ev.FirstTimestamp.Time
		}
		n += ev.Count
		_, last, _ = strings.Cut(rest, ": ")
	}
	return n, since, last
}

// logs returns the command that shows the log of a container.
func (e *explanation) logs(c *container, previous bool) string {
	cmd := "agent logs " + e.Pod.Name
	if e.Pod.Namespace != v1.NamespaceDefault {
		cmd += " -n " + e.Pod.Namespace
	}
	if len(e.Pod.Spec.Containers)+len(e.Pod.Spec.InitContainers) > 1 {
		cmd += " -c " + c.spec.Name
	}
	if previous {
		cmd += " -p"
	}
	return cmd
}
