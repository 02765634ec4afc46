package cri

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// Bounds of what is remembered of pods. Of a pod beyond maxLedgers, or with more
// containers than maxMade, lists are asked for.
const (
	maxLedgers = 4096
	maxMade    = 256
)

// startProves is how long a container's start counts as a look at its sandbox: a
// runtime starts nothing in one that is not ready.
const startProves = time.Second

// ledgers tell what there is of a pod, so that it can be asked for by its ID.
// That holds while all that happens is known here: what this process makes, by
// the answers to its calls, and what others do, by the event stream. Without a
// stream, and after a call whose answer nobody heard, lists tell.
type ledgers struct {
	mu        sync.Mutex
	streaming bool
	// listed are the pods of the first list that began while the stream was open:
	// of any other pod there is what came since. It is nil before.
	listed  map[types.UID]bool
	streams int // counts what begins and ends streams: the list's has to be the same
	pods    map[types.UID]*ledger
	owners  map[string]types.UID // of the IDs of all ledgers
}

// ledger is what there is of a pod with one sandbox. A pod with several, as after the
// end of its first sandbox, is never sure.
type ledger struct {
	namespace, name string
	// sure reports that nothing else is there.
	sure bool
	// calls are under way that make or end something of the pod.
	calls int
	// changes counts what made a list that was on its way too old.
	changes int
	// heard are IDs that events named before anybody else did: those of calls under
	// way, or of others. While there are any the pod is not sure: the answer to a
	// call takes its own ID off, and what stays was made by others.
	heard map[string]bool

	sandbox    string
	status     *observed.Sandbox // of the sandbox, when it was ready; nil: not asked yet
	provenAt   time.Time         // when a start showed that it was ready; zero if not since its last status
	containers map[string]bool
}

func newLedgers() *ledgers {
	return &ledgers{pods: map[types.UID]*ledger{}, owners: map[string]types.UID{}}
}

// eventStream is one call for events, which may be answered late, or never.
type eventStream struct {
	ls     *ledgers
	number int  // guarded by ls.mu: of the stream; 0 before it is open
	over   bool // guarded by ls.mu
}

func (ls *ledgers) stream() *eventStream { return &eventStream{ls: ls} }

// open notes that the stream is there. What was known before may have changed while
// there was none.
func (s *eventStream) open() {
	s.ls.mu.Lock()
	defer s.ls.mu.Unlock()
	if s.over {
		return
	}
	s.ls.reset()
	s.ls.streaming, s.number = true, s.ls.streams
}

// end notes that it is there no more. It may come before open, and after the open of
// another stream.
func (s *eventStream) end() {
	s.ls.mu.Lock()
	defer s.ls.mu.Unlock()
	s.over = true
	if s.number != 0 && s.number == s.ls.streams { // no other one was opened since
		s.ls.reset()
	}
}

// reset forgets all but the calls that are under way, whose ends have to find their
// ledger. mu is held.
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

// current is the stream that is open, or was last, for a list that begins.
func (ls *ledgers) current() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.streams
}

// keep takes the list of all pods that was begun in a stream. A list of an earlier
// stream is of a time that nobody watched, and is ignored.
func (ls *ledgers) keep(pods []observed.Listed, stream int) {
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
		// Pods that are gone make room. A sure one stays: it may be younger than the
		// list.
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

// compare looks in a list for what no call and no event told of. It counts as heard,
// and the next look by lists clears it up.
func (l *ledger) compare(pod *observed.Listed) {
	for _, s := range pod.Sandboxes {
		if s.ID != l.sandbox && len(l.heard) < maxMade {
			l.heard[s.ID] = true
		} else if s.State != observed.Running {
			l.unsure()
		}
	}
	for _, c := range pod.Containers {
		if !l.containers[c.ID] && len(l.heard) < maxMade {
			l.heard[c.ID] = true
		}
	}
}

// unsure sends the next look to lists, and makes those that are under way count for
// nothing.
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

// of is a pod's ledger; nil without a UID or without room. A new one is sure if
// nothing was ever seen of the pod. mu is held.
func (ls *ledgers) of(uid types.UID) *ledger {
	l := ls.pods[uid]
	if l == nil && uid != "" && len(ls.pods) < maxLedgers {
		l = &ledger{sure: ls.streaming && ls.listed != nil && !ls.listed[uid], heard: map[string]bool{}, containers: map[string]bool{}}
		ls.pods[uid] = l
		if ls.listed != nil {
			ls.listed[uid] = true
		}
	}
	return l
}

// event takes note of the runtime's word. Events of what this process has made itself
// change nothing; a sandbox that stops, or a container that is deleted, sends the
// next look to lists.
func (ls *ledgers) event(e observed.Event) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.pods[e.UID] == nil && (e.Kind == observed.ContainerStopped || e.Kind == observed.ContainerDeleted) {
		return // it goes
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
	case len(l.heard) < maxMade:
		l.heard[e.ID] = true
	default:
		l.unsure()
	}
}

// begin notes a call that makes or ends something of a pod. Each begin has an end.
func (ls *ledgers) begin(uid types.UID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.of(uid); l != nil {
		l.calls++
		l.changes++
	}
}

// end notes the end of a call: done if it made what note reported, else nobody
// knows what there is.
func (ls *ledgers) end(uid types.UID, err error, note func(l *ledger)) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.pods[uid]
	if l == nil || l.calls == 0 {
		return // there was no room for it, and there is none to be sure of
	}
	l.calls--
	l.changes++
	if err != nil || note == nil {
		l.unsure()
		return
	}
	note(l)
}

// madeSandbox notes the only sandbox of a pod. A second one is for lists to tell. mu
// is held.
func (ls *ledgers) madeSandbox(uid types.UID, l *ledger, id string) {
	if l.sandbox != "" || len(l.containers) > 0 {
		l.unsure()
		return
	}
	l.sandbox, l.status, l.provenAt = id, nil, time.Time{}
	ls.owners[id] = uid
	delete(l.heard, id)
}

// madeContainer notes a container in the sandbox that is known. mu is held.
func (ls *ledgers) madeContainer(uid types.UID, l *ledger, sandbox, id string) {
	if sandbox != l.sandbox || len(l.containers) >= maxMade {
		l.unsure()
		return
	}
	l.containers[id] = true
	ls.owners[id] = uid
	delete(l.heard, id)
}

// owner is whose sandbox or container an ID is, or "".
func (ls *ledgers) owner(id string) types.UID {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.owners[id]
}

// asked notes the status of a sandbox that is ready, of whichever pod has it. A start
// that showed that before is older than the status, and shows nothing more.
func (ls *ledgers) asked(s *observed.Sandbox) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.pods[ls.owners[s.ID]]; l != nil && l.sandbox == s.ID && s.State == observed.Running {
		l.status, l.provenAt = s, time.Time{}
	}
}

// expected is what there is of a pod.
type expected struct {
	namespace, name string
	sandbox         string
	containers      []string
	// status is that of the sandbox, which needs no question; nil: ask.
	status *observed.Sandbox
}

// expect returns what there is of a pod, unless lists have to tell. A start stands
// for one look at the sandbox: the next one asks.
func (ls *ledgers) expect(uid types.UID, now time.Time) (expected, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.pods[uid]
	if l == nil || !ls.streaming || !l.sure || l.calls > 0 || len(l.heard) > 0 || l.sandbox == "" {
		return expected{}, false
	}
	e := expected{namespace: l.namespace, name: l.name, sandbox: l.sandbox, containers: slices.Sorted(maps.Keys(l.containers))}
	if l.status != nil && !l.provenAt.IsZero() && now.Sub(l.provenAt) < startProves {
		e.status = l.status
	}
	l.provenAt = time.Time{} // once
	return e, true
}

// mark begins a look by lists: what events named so far will be in them.
func (ls *ledgers) mark(uid types.UID) (changes int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of(uid)
	if l == nil {
		return -1
	}
	clear(l.heard)
	return l.changes
}

// took notes what lists showed of a pod, if nothing happened since mark.
func (ls *ledgers) took(pod *observed.Pod, changes int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.pods[pod.UID]
	switch {
	case l == nil || l.calls > 0 || l.changes != changes:
		return
	// Nothing is left, and the pod is new again: what is made for it next is all
	// there is.
	case len(pod.Sandboxes) == 0 && len(pod.Containers) == 0 && len(l.heard) == 0:
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
	// Of every other pod the lists will be asked for again.
	if !ls.streaming || len(pod.Sandboxes) != 1 || pod.Sandboxes[0].State != observed.Running || len(pod.Containers) > maxMade {
		return
	}
	l.sandbox, l.sure, l.namespace, l.name = pod.Sandboxes[0].ID, true, pod.Namespace, pod.Name
	delete(l.heard, l.sandbox)
	ls.owners[l.sandbox] = pod.UID
	for i := range pod.Containers {
		c := &pod.Containers[i]
		// A container of an earlier sandbox: its own is gone, and it may follow
		// unseen.
		if c.SandboxID != l.sandbox {
			l.sure = false
		}
		l.containers[c.ID] = true
		ls.owners[c.ID] = pod.UID
		delete(l.heard, c.ID)
	}
}
