package record

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

// Entry is one fact with its time and its object.
type Entry struct {
	At time.Time `json:"at"` // when the agent learned or decided it, by the wall clock
	// Boot identifies the boot of the machine. The recorder sets At and Boot.
	Boot string `json:"boot,omitempty" is:"id"`
	// Pod is empty in a fact about the node, Container in one about the whole pod.
	Pod       Pod    `json:"pod,omitzero"`
	Container string `json:"container,omitempty" is:"name"`
	Fact      Fact   `json:"-"`
}

// Pod identifies a pod and its life.
type Pod struct {
	Namespace string    `json:"namespace" is:"name"`
	Name      string    `json:"name" is:"name"`
	UID       types.UID `json:"uid" is:"id"`
	Life      uint32    `json:"life,omitempty"`
}

// Kind returns the name of the fact's type in files, such as "instance".
func (e *Entry) Kind() string { return e.Fact.kind() }

// Fact is one of the struct types below. The set is closed: a fact is recorded field by field, so
// that nothing else of a pod gets into a file. The tag "is" of a string says what the string may
// contain:
//
//	name     a name of the API: of a pod, container, volume, image, node, condition
//	id       an ID that the agent, the runtime or the kernel has made
//	address  an address with a port and the path of a probe, without a query
//	word     a word of a closed set, or a reason in CamelCase
//	text     a message of the agent itself about the node's resources
type Fact interface {
	// kind returns the name of the type in files.
	kind() string
	// key identifies the object whose state the fact has, within its pod and container. A state
	// that equals the last one of its key is not recorded. "" means that the fact is an event, not
	// a state.
	key() string
	// idle reports whether the state needs no entry if no other state of its key was recorded
	// before.
	idle() bool
}

// kinds returns an empty value of each type, by its kind.
var kinds = func() map[string]func() Fact {
	all := map[string]func() Fact{}
	for _, empty := range []func() Fact{
		func() Fact { return &Begin{} }, func() Fact { return &Stop{} }, func() Fact { return &Clock{} }, func() Fact { return &Gap{} },
		func() Fact { return &Wanted{} }, func() Fact { return &Verdict{} }, func() Fact { return &Instance{} }, func() Fact { return &Probe{} },
		func() Fact { return &Image{} }, func() Fact { return &Sync{} }, func() Fact { return &Status{} }, func() Fact { return &Resize{} },
		func() Fact { return &Devices{} }, func() Fact { return &Condition{} }, func() Fact { return &Plugin{} }, func() Fact { return &Happened{} },
		func() Fact { return &Decision{} }, func() Fact { return &SandboxRun{} },
	} {
		all[empty().kind()] = empty
	}
	return all
}()

// Begin is the start of the agent's process. Without a [Stop] before it, the process before was
// killed, or the machine lost power.
type Begin struct {
	Node    string `json:"node,omitempty" is:"name"`
	Version string `json:"version,omitempty" is:"word"`
}

// Stop is the orderly end of the agent's process.
type Stop struct{}

// Clock is a change of the wall clock by By, compared with the monotonic clock.
type Clock struct {
	By time.Duration `json:"by"`
}

// Gap says that facts are missing: Lost entries did not fit into the queue or could not be written,
// or a part of a file is damaged.
type Gap struct {
	Lost    int  `json:"lost,omitempty"`
	Damaged bool `json:"damaged,omitempty"`
}

// Wanted is a change of a pod in its source.
type Wanted struct {
	Op     string `json:"op" is:"word"` // ADD, UPDATE, DELETE, REMOVE, as podmgr.Op
	Source string `json:"source,omitempty" is:"name"`
	// Generation is the generation of the pod's object. An edited static pod gets another UID
	// instead.
	Generation int64   `json:"generation,omitempty"`
	Containers []Image `json:"containers,omitempty"`
}

// Verdict is the decision of the agent about a whole pod, with the reason: the pod is admitted,
// waits, is rejected, or ends.
type Verdict struct {
	Admitted bool         `json:"admitted,omitempty"`
	Kind     podlife.Kind `json:"cause,omitempty" is:"word"`
	Reason   string       `json:"reason,omitempty" is:"word"`
	Message  string       `json:"message,omitempty" is:"text"`
	Grace    *int64       `json:"grace,omitempty"` // seconds
}

// Instance is the state of a container in the runtime.
type Instance struct {
	ID       string    `json:"id" is:"id"`
	State    string    `json:"state" is:"word"` // created, running, exited, unknown
	Restarts int32     `json:"restarts,omitempty"`
	Image    string    `json:"image,omitempty" is:"name"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	ExitCode *int32    `json:"exitCode,omitempty"`
	Reason   string    `json:"reason,omitempty" is:"word"` // such as OOMKilled
	Limit    int64     `json:"limit,omitempty"`            // of memory, in bytes
}

// Probe is a changed result of a probe.
type Probe struct {
	ID   string `json:"id" is:"id"`     // of the container's instance
	Type string `json:"type" is:"word"` // startup, readiness, liveness
	OK   bool   `json:"ok,omitempty"`
	// How is exec, http, tcp or grpc, and Target the address and path of the check.
	How    string `json:"how,omitempty" is:"word"`
	Target string `json:"target,omitempty" is:"address"`
	// Times is the number of equal results in a row that made this result; the first was at Since.
	Times int       `json:"times,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Code is the status of the HTTP answer. Error is one of the words of [ErrorWord].
	Code  int    `json:"code,omitempty"`
	Error string `json:"error,omitempty" is:"word"`
}

// Image is the image of a container. With a Reason it cannot be pulled; Error is one of the words
// of [ErrorWord].
type Image struct {
	Container string        `json:"container,omitempty" is:"name"` // in a Wanted
	Image     string        `json:"image,omitempty" is:"name"`
	Reason    string        `json:"reason,omitempty" is:"word"`
	Error     string        `json:"error,omitempty" is:"word"`
	Took      time.Duration `json:"took,omitempty"`
}

// Sync is the result of a pod's last sync. Without a Reason it succeeded.
type Sync struct {
	Reason string `json:"reason,omitempty" is:"word"`
	// Error is one of the words of [ErrorWord].
	Error string `json:"error,omitempty" is:"word"`
	// Volumes are the volumes of the pod that are not mounted, and Hung reports that the disk or
	// the plugin of one of them does not answer.
	Volumes []string `json:"volumes,omitempty" is:"name"`
	Hung    bool     `json:"hung,omitempty"`
	// Call is syncPod, syncTerminatingPod or syncTerminatedPod, and Took how long it took. They
	// are not in files: they differ in each sync, so each sync would count as a change.
	Call string        `json:"-" is:"word"`
	Took time.Duration `json:"-"`
}

// SandboxRun is a call of the runtime that creates a pod's sandbox. If ID is "", the call failed;
// Error is one of the words of [ErrorWord].
type SandboxRun struct {
	ID      string        `json:"id,omitempty" is:"id"`
	Attempt uint32        `json:"attempt,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Error   string        `json:"error,omitempty" is:"word"`
}

// Status is the status of a pod, as published.
type Status struct {
	Phase  string `json:"phase,omitempty" is:"word"`
	Ready  bool   `json:"ready,omitempty"`
	Reason string `json:"reason,omitempty" is:"word"`
}

// Resize is the state of a pod's resize. Without a State there is none.
type Resize struct {
	State  string `json:"state,omitempty" is:"word"` // PodResizePending, PodResizeInProgress
	Reason string `json:"reason,omitempty" is:"word"`
}

// Devices is the health of the devices that a container has of one resource.
type Devices struct {
	Resource  string `json:"resource" is:"name"`
	Unhealthy int    `json:"unhealthy,omitempty"`
	Unknown   int    `json:"unknown,omitempty"`
}

// RuntimeUnavailable is the type of the condition that the container runtime does not answer. Its
// reason is one of the words of [ErrorWord].
const RuntimeUnavailable = "RuntimeUnavailable"

// Condition is a condition of the node: a pressure, or RuntimeUnavailable.
type Condition struct {
	Type   string `json:"type" is:"word"`
	On     bool   `json:"on,omitempty"`
	Reason string `json:"reason,omitempty" is:"word"`
}

// Plugin is the state of a plugin, by its name or its resource.
type Plugin struct {
	Name  string `json:"name" is:"name"`
	Gone  bool   `json:"gone,omitempty"`
	Error string `json:"error,omitempty" is:"word"`
}

// Happened is an event of the node with its reason, such as SystemOOM.
type Happened struct {
	Reason string `json:"reason" is:"word"`
}

func (*Begin) kind() string      { return "begin" }
func (*Stop) kind() string       { return "stop" }
func (*Clock) kind() string      { return "clock" }
func (*Gap) kind() string        { return "gap" }
func (*Wanted) kind() string     { return "wanted" }
func (*Verdict) kind() string    { return "verdict" }
func (*Instance) kind() string   { return "instance" }
func (*Probe) kind() string      { return "probe" }
func (*Image) kind() string      { return "image" }
func (*Sync) kind() string       { return "sync" }
func (*Status) kind() string     { return "status" }
func (*Resize) kind() string     { return "resize" }
func (*Devices) kind() string    { return "devices" }
func (*Condition) kind() string  { return "condition" }
func (*Plugin) kind() string     { return "plugin" }
func (*Happened) kind() string   { return "happened" }
func (*Decision) kind() string   { return "decision" }
func (*SandboxRun) kind() string { return "sandbox" }

func (*Begin) key() string       { return "" }
func (*Stop) key() string        { return "" }
func (*Clock) key() string       { return "" }
func (*Gap) key() string         { return "" }
func (*Wanted) key() string      { return "wanted" }
func (*Verdict) key() string     { return "verdict" }
func (f *Instance) key() string  { return "instance/" + f.ID }
func (f *Probe) key() string     { return "probe/" + f.Type + "/" + f.ID }
func (f *Image) key() string     { return "image" }
func (*Sync) key() string        { return "sync" }
func (*Status) key() string      { return "status" }
func (*Resize) key() string      { return "resize" }
func (f *Devices) key() string   { return "devices/" + f.Resource }
func (f *Condition) key() string { return "condition/" + f.Type }
func (f *Plugin) key() string    { return "plugin/" + f.Name }
func (*Happened) key() string    { return "" }
func (*Decision) key() string    { return "decision" }
func (*SandboxRun) key() string  { return "" }

func (*Begin) idle() bool       { return false }
func (*Stop) idle() bool        { return false }
func (*Clock) idle() bool       { return false }
func (*Gap) idle() bool         { return false }
func (*Wanted) idle() bool      { return false }
func (*Verdict) idle() bool     { return false }
func (*Instance) idle() bool    { return false }
func (*Probe) idle() bool       { return false }
func (f *Image) idle() bool     { return f.Reason == "" && f.Took == 0 }
func (f *Sync) idle() bool      { return f.Reason == "" }
func (*Status) idle() bool      { return false }
func (f *Resize) idle() bool    { return f.State == "" }
func (f *Devices) idle() bool   { return f.Unhealthy+f.Unknown == 0 }
func (f *Condition) idle() bool { return !f.On }
func (f *Plugin) idle() bool    { return !f.Gone }
func (*Happened) idle() bool    { return false }
func (f *Decision) idle() bool  { return f.Result.idle() }
func (*SandboxRun) idle() bool  { return false }
