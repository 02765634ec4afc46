package cri

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// Limits of the ledgers. A pod beyond maxLedgers, or with more containers than maxMade,
// is always inspected with lists.
const (
	maxLedgers = 4096
	maxMade    = 256
)

// startProves is how long after the start of a container its sandbox counts as ready
// without a call: a runtime starts no container in a sandbox that is not ready.
const startProves = time.Second

// ledgers record the sandbox and the containers of each pod, so that a pod can be inspected by
// their IDs. They are complete only while every change is recorded: changes by this process from
// the answers to its calls, changes by other programs from the event stream. Without a stream, and
// after a call that failed, a pod is inspected with lists.
type ledgers struct {
	mu        sync.Mutex
	streaming bool
	// listed has the pods that may have items without a ledger: the pods of the newest list that
	// began while the stream was open, and the pods that got a ledger since. Any other pod has
	// nothing in the runtime. listed is nil before the first such list.
	listed  map[types.UID]bool
	streams int // number of opened and ended streams; a list is used only if it has not changed since the list began
	pods    map[types.UID]*ledger
	owners  map[string]types.UID // pods by the IDs of all ledgers
}

// ledger has the sandbox and the containers of a pod.
type ledger struct {
	namespace, name string
	// sure means that the pod has nothing else in the runtime. It is never set for a pod with
	// several sandboxes, for example a pod whose first sandbox has ended.
	sure bool
	// calls counts the calls in progress that create or end something of the pod.
	calls int
	// changes is increased by everything that makes lists in progress out of date.
	changes int
	// unclaimed has the IDs of events that no call has returned yet. The answer to a call removes
	// its ID. An ID that remains was created by another program. While there are such IDs, the
	// pod is inspected with lists.
	unclaimed map[string]bool

	sandbox    string
	status     *observed.Sandbox // status of the sandbox when it was ready; nil if it was not read yet
	provenAt   time.Time         // time of the last start of a container after status was read; zero if there was none
	containers map[string]bool
}

func newLedgers() *ledgers {
	return &ledgers{pods: map[types.UID]*ledger{}, owners: map[string]types.UID{}}
}

// eventStream is one call for the runtime's events. The runtime may answer late, or
// never.
type eventStream struct {
	ls     *ledgers
	number int  // number of the stream; 0 before it is open; guarded by ls.mu
	over   bool // guarded by ls.mu
}

func (ls *ledgers) stream() *eventStream { return &eventStream{ls: ls} }

// open records that the stream is open. It drops all ledgers, since something may have
// changed while no stream was open.
func (s *eventStream) open() {
	s.ls.mu.Lock()
	defer s.ls.mu.Unlock()
	if s.over {
		return
	}
	s.ls.reset()
	s.ls.streaming, s.number = true, s.ls.streams
}

// end records that the stream has ended. It may be called before open, and after the
// open of another stream.
func (s *eventStream) end() {
	s.ls.mu.Lock()
	defer s.ls.mu.Unlock()
	s.over = true
	if s.number != 0 && s.number == s.ls.streams { // no other one was opened since
		s.ls.reset()
	}
}

// reset drops all ledgers. A ledger with calls in progress is emptied instead, since the ends of
// these calls need it. mu is held.
func (ls *ledgers) reset() {
	ls.streaming, ls.listed = false, nil
	ls.streams++
	clear(ls.owners)
	for uid, l := range ls.pods {
		if l.calls == 0 {
			delete(ls.pods, uid)
			continue
		}
		l.unsure()
		l.sandbox, l.status, l.containers = "", nil, map[string]bool{}
	}
}

// current returns ls.streams at the time when a list begins, for recordAll.
func (ls *ledgers) current() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.streams
}

// recordAll records a list of all pods. stream is the result of current when the list
// began. The list is ignored if streams have ended or begun since.
func (ls *ledgers) recordAll(pods []observed.Listed, stream int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ls.streaming || ls.streams != stream {
		return
	}
	first := ls.listed == nil
	ls.listed = make(map[types.UID]bool, len(pods))
	for i := range pods {
		ls.listed[pods[i].UID] = true
	}
	for uid, l := range ls.pods {
		switch {
		case first:
			l.unsure() // it may have something from before the stream
		// The pod is gone. A sure one stays: it may have been created after the list.
		case !ls.listed[uid] && l.calls == 0 && !l.sure:
			ls.drop(uid, l)
		}
		ls.listed[uid] = true
	}
	for i := range pods {
		if l := ls.pods[pods[i].UID]; l != nil {
			l.compare(&pods[i])
		}
	}
}

// compare adds items of a list that neither a call nor an event has named to unclaimed:
// the next inspection uses lists.
func (l *ledger) compare(pod *observed.Listed) {
	for _, s := range pod.Sandboxes {
		if s.ID != l.sandbox && len(l.unclaimed) < maxMade {
			l.unclaimed[s.ID] = true
		} else if s.State != observed.Running {
			l.unsure()
		}
	}
	for _, c := range pod.Containers {
		if !l.containers[c.ID] && len(l.unclaimed) < maxMade {
			l.unclaimed[c.ID] = true
		}
	}
}

// unsure makes the next inspection use lists, and makes lists in progress out of date.
func (l *ledger) unsure() {
	l.sure = false
	l.changes++
}

// drop forgets a pod. mu is held.
func (ls *ledgers) drop(uid types.UID, l *ledger) {
	delete(ls.owners, l.sandbox)
	for id := range l.containers {
		delete(ls.owners, id)
	}
	delete(ls.pods, uid)
}

// of returns the ledger of a pod, and makes a new one if there is none. It returns nil if the UID
// is "" or there are maxLedgers ledgers. A new ledger is sure if the pod had nothing in the
// runtime. mu is held.
func (ls *ledgers) of(uid types.UID) *ledger {
	l := ls.pods[uid]
	if l == nil && uid != "" && len(ls.pods) < maxLedgers {
		l = &ledger{sure: ls.streaming && ls.listed != nil && !ls.listed[uid], unclaimed: map[string]bool{}, containers: map[string]bool{}}
		ls.pods[uid] = l
		if ls.listed != nil {
			ls.listed[uid] = true
		}
	}
	return l
}

// event records an event of the runtime. Creation and start of a known item change
// nothing. After the end of a sandbox, or the removal of a container, the next
// inspection uses lists.
func (ls *ledgers) event(e observed.Event) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.pods[e.UID] == nil && (e.Kind == observed.ContainerStopped || e.Kind == observed.ContainerDeleted) {
		return // the end of an item of a pod without a ledger
	}
	l := ls.of(e.UID)
	if l == nil {
		return
	}
	switch {
	case e.ID == l.sandbox:
		if e.Kind != observed.ContainerCreated && e.Kind != observed.ContainerStarted {
			l.unsure()
		}
	case l.containers[e.ID]:
		if e.Kind == observed.ContainerDeleted {
			l.unsure()
		}
	case len(l.unclaimed) < maxMade:
		l.unclaimed[e.ID] = true
	default:
		l.unsure()
	}
}

// begin counts a call that creates or ends something of a pod. Each begin needs an end.
func (ls *ledgers) begin(uid types.UID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.of(uid); l != nil {
		l.calls++
		l.changes++
	}
}

// end counts the end of a call. note records what the call has created. After an error, or if
// note is nil, the next inspection uses lists.
func (ls *ledgers) end(uid types.UID, err error, note func(l *ledger)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.pods[uid]
	if l == nil || l.calls == 0 {
		return // begin found no ledger
	}
	l.calls--
	l.changes++
	if err != nil || note == nil {
		l.unsure()
		return
	}
	note(l)
}

// madeSandbox records the sandbox that a call has created. With a second sandbox, the
// pod is inspected with lists. mu is held.
func (ls *ledgers) madeSandbox(uid types.UID, l *ledger, id string) {
	if l.sandbox != "" || len(l.containers) > 0 {
		l.unsure()
		return
	}
	l.sandbox, l.status, l.provenAt = id, nil, time.Time{}
	ls.owners[id] = uid
	delete(l.unclaimed, id)
}

// madeContainer records a container that a call has created. In an unknown sandbox, or
// beyond maxMade, the pod is inspected with lists. mu is held.
func (ls *ledgers) madeContainer(uid types.UID, l *ledger, sandbox, id string) {
	if sandbox != l.sandbox || len(l.containers) >= maxMade {
		l.unsure()
		return
	}
	l.containers[id] = true
	ls.owners[id] = uid
	delete(l.unclaimed, id)
}

// owner returns the pod of a sandbox or container, or "" if no ledger has it.
func (ls *ledgers) owner(id string) types.UID {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.owners[id]
}

// recordStatus records the status of a sandbox that is ready. It drops the time of an earlier
// start, since the status is newer.
func (ls *ledgers) recordStatus(s *observed.Sandbox) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.pods[ls.owners[s.ID]]; l != nil && l.sandbox == s.ID && s.State == observed.Running {
		l.status, l.provenAt = s, time.Time{}
	}
}

// expected is what a pod has in the runtime, according to its ledger.
type expected struct {
	namespace, name string
	sandbox         string
	containers      []string
	// status is the sandbox's status. It is nil if it has to be read with a call.
	status *observed.Sandbox
}

// expect returns what the pod has. The second result is false if the pod has to be inspected with
// lists. A recent start of a container saves the call for the status of the sandbox.
func (ls *ledgers) expect(uid types.UID, now time.Time) (expected, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.pods[uid]
	if l == nil || !ls.streaming || !l.sure || l.calls > 0 || len(l.unclaimed) > 0 || l.sandbox == "" {
		return expected{}, false
	}
	e := expected{namespace: l.namespace, name: l.name, sandbox: l.sandbox, containers: slices.Sorted(maps.Keys(l.containers))}
	if l.status != nil && !l.provenAt.IsZero() && now.Sub(l.provenAt) < startProves {
		e.status = l.status
	}
	l.provenAt = time.Time{} // the next inspection reads the status
	return e, true
}

// beginLists is called before a pod is listed. The lists will have everything that
// events have named so far. The result is for recordLists.
func (ls *ledgers) beginLists(uid types.UID) (changes int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of(uid)
	if l == nil {
		return -1
	}
	clear(l.unclaimed)
	return l.changes
}

// recordLists records what lists showed of a pod, unless something has changed since
// beginLists.
func (ls *ledgers) recordLists(pod *observed.Pod, changes int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.pods[pod.UID]
	switch {
	case l == nil || l.calls > 0 || l.changes != changes:
		return
	// The pod has nothing left: it counts as new, and its next ledger is sure.
	case len(pod.Sandboxes) == 0 && len(pod.Containers) == 0 && len(l.unclaimed) == 0:
		ls.drop(pod.UID, l)
		delete(ls.listed, pod.UID)
		return
	}
	delete(ls.owners, l.sandbox)
	for id := range l.containers {
		delete(ls.owners, id)
	}
	l.sandbox, l.status, l.provenAt, l.sure = "", nil, time.Time{}, false
	clear(l.containers)
	// In all other cases the pod stays unsure, and is inspected with lists again.
	if !ls.streaming || len(pod.Sandboxes) != 1 || pod.Sandboxes[0].State != observed.Running || len(pod.Containers) > maxMade {
		return
	}
	l.sandbox, l.sure, l.namespace, l.name = pod.Sandboxes[0].ID, true, pod.Namespace, pod.Name
	delete(l.unclaimed, l.sandbox)
	ls.owners[l.sandbox] = pod.UID
	for i := range pod.Containers {
		c := &pod.Containers[i]
		// The container is of an earlier sandbox that is gone. It may be removed
		// without an event.
		if c.SandboxID != l.sandbox {
			l.sure = false
		}
		l.containers[c.ID] = true
		ls.owners[c.ID] = pod.UID
		delete(l.unclaimed, c.ID)
	}
}
