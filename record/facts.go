package record

import (
	"net"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// These functions convert pods, errors and answers of the runtime to facts. They keep only what
// may be recorded.

// WantedOf returns the fact about a pod's change in its source.
func WantedOf(op, source string, pod *v1.Pod) *Wanted {
	w := &Wanted{Op: op, Source: source, Generation: pod.Generation}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			w.Containers = append(w.Containers, Image{Container: list[i].Name, Image: list[i].Image})
		}
	}
	return w
}

// VerdictOf returns the cause of a pod's end, rejection or wait; the zero cause means that the pod
// is admitted. The message is recorded only for causes whose messages are about the resources of
// the node: other messages may quote the spec.
func VerdictOf(why podlife.Cause) *Verdict {
	v := &Verdict{Kind: why.Kind, Reason: Reason(why.Reason), Grace: why.Grace}
	v.Admitted = *v == Verdict{}
	switch why.Kind {
	case podlife.Evicted, podlife.OverLimit, podlife.Preempted, podlife.VolumesExhausted:
		v.Message = message(why.Message)
	case podlife.Rejected, podlife.Waits:
		if strings.HasPrefix(why.Reason, "OutOf") {
			v.Message = message(why.Message)
		}
	}
	return v
}

// InstanceOf returns the state of a container. spec is the container in the pod's spec, nil if it is
// not in it.
func InstanceOf(c *observed.Container, spec *v1.Container) *Instance {
	f := &Instance{ID: ShortID(c.ID), State: c.State.String(), Restarts: c.RestartCount, Image: c.Image, Started: milli(c.StartedAt)}
	if c.State == observed.Exited {
		f.Finished, f.ExitCode, f.Reason = milli(c.FinishedAt), c.ExitCode, Reason(c.Reason)
	}
	if c.Resources != nil {
		f.Limit = c.Resources.MemoryLimit
	}
	if spec != nil && f.Limit == 0 {
		f.Limit = spec.Resources.Limits.Memory().Value()
	}
	return f
}

// ShortID returns the ID of a container or sandbox as it is recorded. A long ID is shortened to
// its beginning and its end, which together are unique on a node.
func ShortID(id string) string {
	const part = 8
	if len(id) <= 2*part+1 {
		return id
	}
	return id[:part] + "~" + id[len(id)-part:]
}

// milli returns a time in UTC and milliseconds.
func milli(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// StatusOf returns the status of a pod.
func StatusOf(st *v1.PodStatus) *Status {
	s := &Status{Phase: Reason(string(st.Phase)), Reason: Reason(st.Reason)}
	for i := range st.Conditions {
		if c := &st.Conditions[i]; c.Type == v1.PodReady {
			s.Ready = c.Status == v1.ConditionTrue
		}
	}
	return s
}

// ResizeOf returns the state of a pod's resize by its conditions.
func ResizeOf(conditions []v1.PodCondition) *Resize {
	for i := range conditions {
		if c := &conditions[i]; c.Status == v1.ConditionTrue {
			return &Resize{State: Reason(string(c.Type)), Reason: Reason(c.Reason)}
		}
	}
	return &Resize{}
}

// ConditionOf returns a condition of the node.
func ConditionOf(c v1.NodeCondition) *Condition {
	return &Condition{Type: Reason(string(c.Type)), On: c.Status == v1.ConditionTrue, Reason: Reason(c.Reason)}
}

// DevicesOf returns the health of a container's devices.
func DevicesOf(s v1.ResourceStatus) *Devices {
	f := &Devices{Resource: string(s.Name)}
	for _, r := range s.Resources {
		switch r.Health {
		case v1.ResourceHealthStatusUnhealthy:
			f.Unhealthy++
		case v1.ResourceHealthStatusUnknown:
			f.Unknown++
		}
	}
	return f
}

// SyncOf returns the result of a sync.
func SyncOf(err error) *Sync {
	if err == nil {
		return &Sync{}
	}
	reason := Reason(podlife.ReasonOf(err))
	if reason == "" {
		reason = "Error"
	}
	return &Sync{Reason: reason, Error: WordOf(err)}
}

// SandboxRunOf returns the result of a call that makes a sandbox.
func SandboxRunOf(id string, attempt uint32, took time.Duration, err error) *SandboxRun {
	return &SandboxRun{ID: ShortID(id), Attempt: attempt, Took: took.Round(time.Millisecond), Error: WordOf(err)}
}

// Check has the last check that made the result of a probe.
type Check struct {
	Probe     *v1.Probe
	Container *v1.Container
	// IP is the pod's address. Output is what the check returned: text of the container.
	IP, Output string
	Times      int
	Since      time.Time
}

// ProbeOf returns the result of a probe of a container. It takes only the status of an HTTP
// answer, or a word for the error, from the output.
func ProbeOf(id, typ string, ok bool, c Check) *Probe {
	f := &Probe{ID: ShortID(id), Type: strings.ToLower(typ), OK: ok, Times: c.Times, Since: milli(c.Since)}
	if c.Probe == nil {
		return f
	}
	h := c.Probe.ProbeHandler
	switch {
	case h.Exec != nil:
		f.How = "exec"
	case h.HTTPGet != nil:
		path, _, _ := strings.Cut(h.HTTPGet.Path, "?")
		path, _, _ = strings.Cut(path, "#")
		f.How, f.Target = "http", address(h.HTTPGet.Host, c, h.HTTPGet.Port)+path[:min(len(path), maxPath)]
	case h.TCPSocket != nil:
		f.How, f.Target = "tcp", address(h.TCPSocket.Host, c, h.TCPSocket.Port)
	case h.GRPC != nil:
		f.How, f.Target = "grpc", address("", c, intstr.FromInt32(h.GRPC.Port))
	}
	if ok || c.Output == "" {
		return f
	}
	if n, err := strconv.Atoi(c.Output[strings.LastIndexByte(c.Output, ' ')+1:]); err == nil && f.How == "http" && n >= 100 && n < 1000 {
		f.Code = n
		return f
	}
	// The output of a command comes from the container and may contain anything, so it is not used
	// as the cause.
	if f.How != "exec" || strings.HasPrefix(c.Output, "command timed out") {
		f.Error = ErrorWord(c.Output)
	}
	return f
}

// maxPath limits the path of a probe in bytes.
const maxPath = 128

// address returns the host and port of a check. The name of a port is looked up in the container.
func address(host string, c Check, port intstr.IntOrString) string {
	if host == "" {
		host = c.IP
	}
	n := port.String()
	if port.Type == intstr.String && c.Container != nil {
		for i := range c.Container.Ports {
			if p := &c.Container.Ports[i]; p.Name == port.StrVal {
				n = strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	return net.JoinHostPort(host, n)
}
