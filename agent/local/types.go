package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// ErrNoAgent means that nothing listens on the socket of a [Client].
var ErrNoAgent = errors.New("no agent answers")

// ErrNotFound means that there is no such pod or container. Over HTTP the answer is 404 with the
// error's text.
var ErrNotFound = errors.New("not found")

// Agent has the methods of a node agent that this package calls. They may be called at any time
// from any goroutine; the caller may change the results.
type Agent interface {
	// Pods returns every known pod with its current status, including terminating pods.
	Pods() []*v1.Pod
	// Events returns the stored events of a pod, oldest first.
	Events(pod *v1.Pod) []v1.Event
	// AllEvents returns the stored events of all pods and of the node, oldest first, including
	// those of pods that are gone.
	AllEvents() []v1.Event
	// Why explains the state of a pod, and what it waits for.
	Why(pod *v1.Pod) Why
	// LogPath returns the log file of a container's newest instance, or of the previous one.
	LogPath(pod *v1.Pod, container string, previous bool) (string, error)
	// Exec prepares a command in a running container and returns the URL
	// where the runtime streams it.
	Exec(ctx context.Context, pod *v1.Pod, r ExecRequest) (url string, err error)
	// Problems returns the manifests that were refused or are held back.
	Problems() []Problem
	// Healthy returns an error if the agent is not healthy.
	Healthy() error
}

// LogKeeper is an [Agent] that names the directory of its logs. Only files below that directory are
// logs, and links below it are not followed.
type LogKeeper interface {
	// LogsDir returns the directory of all container logs.
	LogsDir() string
}

// Why is the answer to "why is this pod not what I asked for?".
type Why struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Phase is the pod's phase as last computed.
	Phase string `json:"phase"`
	// Stage is sync, terminating or terminated. It is waiting if the pod has no worker:
	// it was rejected, or its worker has not been created yet.
	Stage string `json:"stage"`
	// Doing is the current work of the pod's worker; "" if it does nothing.
	Doing string    `json:"doing,omitempty"`
	Since time.Time `json:"since"`
	// WaitingFor says in one line what has to happen next.
	WaitingFor string `json:"waitingFor,omitempty"`
	// NextAt is the latest time at which the agent acts by itself; zero if it only waits for an
	// event.
	NextAt     time.Time `json:"nextAt"`
	NextReason string    `json:"nextReason,omitempty"`
	LastError  string    `json:"lastError,omitempty"`
	Failures   int       `json:"failures,omitempty"`
	// Good reports that the pod is in the wanted state. Otherwise State describes the problem,
	// such as "does not run"; Cause continues the sentence of State, and Evidence has lines of
	// evidence.
	Good     bool     `json:"good"`
	State    string   `json:"state"`
	Cause    string   `json:"cause,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
	// Next is what the agent tries by itself at NextAt, such as "next start".
	Next string `json:"next,omitempty"`
	// Do lists what a person can do, a line each.
	Do []string `json:"do,omitempty"`
	// Manifest is the file of the pod; "" if it has none.
	Manifest string `json:"manifest,omitempty"`
	// Pull says how much has been received of the image that the pod waits for, such as
	// "12 of 40 MiB"; "" if it waits for none, or the runtime does not report it.
	Pull string `json:"pull,omitempty"`
}

// Summary returns the state of the pod and its cause in one sentence.
func (w *Why) Summary() string {
	switch {
	case !w.Good:
		return w.State + ": " + w.Cause
	case w.State == "runs":
		return "runs, and is as it should be"
	default:
		return w.State
	}
}

// Lines returns the whole answer as "agent why" prints it: the pod's name and the summary, then the
// rest, indented.
func (w *Why) Lines(now time.Time) []string {
	lines := w.Details(now)
	lines[0] = w.Namespace + "/" + w.Name + " " + lines[0]
	for i := range lines[1:] {
		lines[i+1] = "  " + lines[i+1]
	}
	return lines
}

// Details returns the whole answer, a line each: the summary, the evidence, what the agent tries
// next, and what a person can do.
func (w *Why) Details(now time.Time) []string {
	lines := append([]string{w.Summary()}, w.Evidence...)
	if !w.Good && !w.NextAt.IsZero() {
		next := w.Next
		if next == "" {
			next = "next look"
		}
		lines = append(lines, fmt.Sprintf("%s: %s (in %s)", next, w.NextAt.Local().Format(time.TimeOnly), duration.HumanDuration(max(0, w.NextAt.Sub(now)))))
	}
	for _, l := range w.Do {
		lines = append(lines, "do: "+l)
	}
	return lines
}

// ExecRequest requests a command in a container.
type ExecRequest struct {
	// Container may be "" for the pod's first container.
	Container string   `json:"container,omitempty"`
	Command   []string `json:"command"`
	Stdin     bool     `json:"stdin,omitempty"`
	TTY       bool     `json:"tty,omitempty"`
}

// Streamer is an [Agent] that connects clients to the processes and ports of its pods.
type Streamer interface {
	// Attach returns the URL of the streams of a running container's first process. The reply also
	// says whether the process has a terminal and standard input, which depend on the container,
	// not on the request.
	Attach(ctx context.Context, pod *v1.Pod, r AttachRequest) (AttachReply, error)
	// PortForward returns the URL where the runtime forwards connections to ports of a running pod.
	PortForward(ctx context.Context, pod *v1.Pod) (url string, err error)
}

// AttachRequest requests the streams of a container.
type AttachRequest struct {
	// Container may be "" for the pod's first container.
	Container string `json:"container,omitempty"`
	Stdin     bool   `json:"stdin,omitempty"`
}

// AttachReply has the URL of a container's streams. Its protocol is Kubernetes' remote command
// protocol.
type AttachReply struct {
	URL   string `json:"url"`
	TTY   bool   `json:"tty,omitempty"`
	Stdin bool   `json:"stdin,omitempty"`
}

// ExecReply has the URL of a command's streams, or of forwarded ports.
type ExecReply struct {
	// URL is for Kubernetes' remote command protocol. unix://SOCKET/METHOD/TOKEN is a URL of a unix
	// socket.
	URL string `json:"url"`
}

// Problem is a manifest, or a part of one, that is not in effect.
type Problem struct {
	Source   string `json:"source"`
	File     string `json:"file,omitempty"`
	Document int    `json:"document,omitempty"` // counted from 1
	Line     int    `json:"line,omitempty"`     // in the file, counted from 1
	Pod      string `json:"pod,omitempty"`      // namespace/name, if it could be read
	Field    string `json:"field,omitempty"`
	Reason   string `json:"reason"`
	// Kept reports that an earlier valid version stays in effect.
	Kept bool `json:"kept,omitempty"`
}

// Place returns the file, with the line if it is known, in the format of editors; without a file,
// the source.
func (p *Problem) Place() string {
	switch {
	case p.File == "":
		return p.Source
	case p.Line > 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	default:
		return p.File
	}
}

// Text returns the problem without its place.
func (p *Problem) Text() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// LogOptions selects the part of a log to send.
type LogOptions struct {
	// Container may be "" for the pod's first container.
	Container string
	// Previous selects the previous instance.
	Previous bool
	// Follow continues until the container ends or the client leaves.
	Follow bool
	// Timestamps adds each line's time (RFC 3339 with nanoseconds).
	Timestamps bool
	// Tail is the number of last lines to begin with; a negative number means all.
	Tail int64
	// Since drops older lines; the zero time drops none.
	Since time.Time
}
