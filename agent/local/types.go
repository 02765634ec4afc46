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

// ErrNotFound means that the agent knows no such pod or container. The HTTP
// side answers 404 with the error's text.
var ErrNotFound = errors.New("not found")

// Agent is what this package asks of a node agent. All methods may be called
// at any time from any goroutine; what they return is the caller's own.
type Agent interface {
	// Pods lists every known pod with its current status, those being
	// terminated included.
	Pods() []*v1.Pod
	// Events lists the remembered events of a pod, oldest first.
	Events(pod *v1.Pod) []v1.Event
	// AllEvents lists the remembered events of all pods and of the node, oldest first; those of pods
	// that are gone, too.
	AllEvents() []v1.Event
	// Why says what the agent does about a pod, and what it waits for.
	Why(pod *v1.Pod) Why
	// LogPath is the file of a container's current log, or of the instance
	// before it.
	LogPath(pod *v1.Pod, container string, previous bool) (string, error)
	// Exec prepares a command in a running container and returns the URL
	// where the runtime streams it.
	Exec(ctx context.Context, pod *v1.Pod, r ExecRequest) (url string, err error)
	// Problems lists the manifests that were refused or are held back.
	Problems() []Problem
	// Healthy returns nil, or what is wrong with the agent.
	Healthy() error
}

// LogKeeper is an [Agent] that says where its logs are: no link below that
// directory leads to one, and what is not below it is none.
type LogKeeper interface {
	// LogsDir is the directory that all logs of containers are below.
	LogsDir() string
}

// Why is the answer to "why is this pod not what I asked for?".
type Why struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Phase is the pod's phase as last computed.
	Phase string `json:"phase"`
	// Stage is sync, terminating, terminated, or waiting for a pod that
	// has no worker (a rejected one, or one that no worker has begun with yet).
	Stage string `json:"stage"`
	// Doing says what the worker does at this moment; "" when it sleeps.
	Doing string    `json:"doing,omitempty"`
	Since time.Time `json:"since"`
	// WaitingFor says in one line what has to happen next.
	WaitingFor string `json:"waitingFor,omitempty"`
	// NextAt is when the agent acts by itself at the latest; zero if it
	// only waits for an event.
	NextAt     time.Time `json:"nextAt"`
	NextReason string    `json:"nextReason,omitempty"`
	LastError  string    `json:"lastError,omitempty"`
	Failures   int       `json:"failures,omitempty"`
	// Good reports that the pod is as it should be. Otherwise Cause says why it is not, in a line
	// that goes on after State, such as "does not run", and Evidence has what shows it.
	Good     bool     `json:"good"`
	State    string   `json:"state"`
	Cause    string   `json:"cause,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
	// Next is what the agent tries by itself at NextAt, such as "next start".
	Next string `json:"next,omitempty"`
	// Do has what a person can do, a line each.
	Do []string `json:"do,omitempty"`
	// Manifest is the file that the pod comes from, "" if it is of none.
	Manifest string `json:"manifest,omitempty"`
}

// Summary says in a sentence how the pod is, and why.
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

// Lines is the whole answer for people, as "agent why" prints it: the pod's name and the summary,
// and what follows indented.
func (w *Why) Lines(now time.Time) []string {
	lines := w.Details(now)
	lines[0] = w.Namespace + "/" + w.Name + " " + lines[0]
	for i := range lines[1:] {
		lines[i+1] = "  " + lines[i+1]
	}
	return lines
}

// Details is the whole answer, a line each: the summary, the evidence, what the agent tries next
// and what a person can do.
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

// ExecRequest asks for a command in a container.
type ExecRequest struct {
	// Container may be "" for the pod's first container.
	Container string   `json:"container,omitempty"`
	Command   []string `json:"command"`
	Stdin     bool     `json:"stdin,omitempty"`
	TTY       bool     `json:"tty,omitempty"`
}

// Streamer is an [Agent] that joins clients to what runs in its pods.
type Streamer interface {
	// Attach returns the URL of the streams of a running container's first process, and whether it
	// has a terminal and standard input: the container decides, and not the client.
	Attach(ctx context.Context, pod *v1.Pod, r AttachRequest) (AttachReply, error)
	// PortForward returns the URL where the runtime forwards connections to ports of a running pod.
	PortForward(ctx context.Context, pod *v1.Pod) (url string, err error)
}

// AttachRequest asks for the streams of a container.
type AttachRequest struct {
	// Container may be "" for the pod's first container.
	Container string `json:"container,omitempty"`
	Stdin     bool   `json:"stdin,omitempty"`
}

// AttachReply has the URL of a container's streams, which speaks the Kubernetes remote command
// protocol.
type AttachReply struct {
	URL   string `json:"url"`
	TTY   bool   `json:"tty,omitempty"`
	Stdin bool   `json:"stdin,omitempty"`
}

// ExecReply has the URL of a command's streams, or of forwarded ports.
type ExecReply struct {
	// URL speaks the Kubernetes remote command protocol. unix://SOCKET/METHOD/TOKEN is
	// one of a unix socket.
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
	// Kept reports that an earlier, good version stays in effect.
	Kept bool `json:"kept,omitempty"`
}

// Place is the file, with the line if that is known, as editors take it; or else the source.
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

// Text is the mistake without its place in files.
func (p *Problem) Text() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// LogOptions selects what of a log is sent.
type LogOptions struct {
	// Container may be "" for the pod's first container.
	Container string
	// Previous asks for the instance before the current one.
	Previous bool
	// Follow goes on until the container ends or the caller leaves.
	Follow bool
	// Timestamps puts each line's time (RFC 3339 with nanoseconds) before it.
	Timestamps bool
	// Tail is the number of lines to start with; negative means all.
	Tail int64
	// Since drops lines that are older; the zero time drops none.
	Since time.Time
}
