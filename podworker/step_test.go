package podworker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

// The histories in testdata/step tell the core what happens and show what it
// wants done, and the states that changed. No worker runs: begin and return
// are the worker's part. Commands:
//
//	run                         Run is called
//	create|config|sync|kill U   an update, see command.update
//	begin U                     the worker of U begins a call
//	return U [terminal] [acted] [error]
//	resync U
//	known U...                  SyncKnownPods: these are wanted
//	tick D                      time passes
//	shut                        Run's context has ended
func TestStepHistories(t *testing.T) {
	runScripts(t, "step", func(t *testing.T, script func(func([]command) string)) {
		h := &coreHistory{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), done: map[chan<- struct{}]string{}, shown: map[types.UID]string{}}
		h.begin = h.now
		h.core = newCore(func(uid types.UID) bool { return h.idle == uid })
		script(h.block)
	})
}

type coreHistory struct {
	t          *testing.T
	core       *core
	begin, now time.Time
	idle       types.UID
	done       map[chan<- struct{}]string
	shown      map[types.UID]string
	out        strings.Builder
}

func (h *coreHistory) block(commands []command) string {
	h.out.Reset()
	for _, c := range commands {
		h.command(c)
	}
	uids := slices.Collect(maps.Keys(h.shown))
	for uid := range h.core.pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		h.state(uid)
	}
	return h.out.String()
}

func (h *coreHistory) command(c command) {
	p := h.core.pods[types.UID(c.who)]
	switch c.verb {
	case "create", "config", "sync", "kill":
		h.idle = ""
		if c.has("idle") {
			h.idle = types.UID(c.who)
		}
		u := c.update(h.t, h.now, h.newDone)
		uid, ok := identify(&u)
		if !ok {
			fmt.Fprintln(&h.out, "dropped")
			return
		}
		h.show(h.core.update(uid, u, h.now))
	case "tick":
		h.now = h.now.Add(c.duration(h.t, c.who))
	case "run":
		h.core.open = true
		h.all(opened{})
	case "shut":
		h.all(shut{})
	case "known":
		h.all(unwanted{}, c.rest...)
	case "begin":
		h.feed(p, begun{})
	case "resync":
		h.feed(p, resynced{})
	case "return":
		e := returned{outcome: Outcome{Terminal: c.has("terminal"), Acted: c.has("acted")}}
		if c.has("error") {
			e.err = errors.New("error")
		}
		h.feed(p, e)
	default:
		h.t.Fatalf("unknown command %q", c.verb)
	}
}

// all informs every pod of e, in the order of UIDs, but for some.
func (h *coreHistory) all(e event, except ...string) {
	for _, uid := range slices.Sorted(maps.Keys(h.core.pods)) {
		if p := h.core.pods[uid]; p != nil && !slices.Contains(except, string(uid)) {
			h.feed(p, e)
		}
	}
}

func (h *coreHistory) feed(p *pod, e event) { h.show(h.core.feed(p, e, h.now)) }

func (h *coreHistory) newDone(name string) chan<- struct{} {
	d := make(chan struct{})
	h.done[d] = name
	return d
}

func (h *coreHistory) show(effects []podEffect) {
	for _, of := range effects {
		fmt.Fprintf(&h.out, "%s -> %s\n", of.pod.uid, h.effect(of))
	}
}

func (h *coreHistory) effect(of podEffect) string {
	what, interrupt := "", false
	switch e := of.effect.(type) {
	case deliver:
		what, interrupt = "deliver", e.interrupt
	case again:
		what, interrupt = "call again", e.interrupt
	case call:
		what = describeTurn(&of.pod.turn, h.begin)
	case next:
		what = "then " + e.then.String()
	case notify:
		what = "close " + h.done[e.done]
	case countBegin:
		what = fmt.Sprintf("count %d containers", e.containers)
	case countStart:
		what = fmt.Sprintf("count start after %v", e.age)
	case countGone:
		what = "count end without a call"
	case claimName:
		what = "claim name"
	case freeName:
		what = "free name"
	case forget:
		what = "forget"
		if e.next != nil {
			what += fmt.Sprintf(", begin anew with %v", describeUpdate(e.next))
		}
	case over:
		what = "over"
	default:
		h.t.Fatalf("unknown effect %T", e)
	}
	if interrupt {
		what += ", interrupt"
	}
	return what
}

func describeTurn(t *turn, begin time.Time) string {
	w := &t.work
	op := map[Kind]string{Sync: "SyncPod", Terminating: "SyncTerminatingPod", Terminated: "SyncTerminatedPod"}[t.kind]
	if t.kind == Terminating && w.RuntimePod != nil {
		op = "SyncTerminatingRuntimePod"
	}
	op += " " + w.Type.String()
	if w.Pod != nil {
		op += fmt.Sprintf(" gen=%d", w.Pod.Generation)
	}
	if w.GracePeriodSeconds != nil {
		op += fmt.Sprintf(" grace=%d", *w.GracePeriodSeconds)
	}
	if w.Evicted {
		op += " evicted"
	}
	if !w.NewerThan.IsZero() {
		op += fmt.Sprintf(" newer-than=%v", w.NewerThan.Sub(begin))
	}
	return op
}

func describeUpdate(u *Update) string {
	if u.Pod == nil {
		return u.Type.String() + " runtime"
	}
	return fmt.Sprintf("%v gen=%d", u.Type, u.Pod.Generation)
}

// state shows a pod if it changed.
func (h *coreHistory) state(uid types.UID) {
	p, line := h.core.pods[uid], "gone"
	if p != nil {
		line = h.describe(p)
	}
	if h.shown[uid] != line {
		fmt.Fprintf(&h.out, "%s: %s\n", uid, line)
	}
	if h.shown[uid] = line; p == nil {
		delete(h.shown, uid)
	}
}

func (h *coreHistory) describe(p *pod) string {
	s := fmt.Sprintf("%v %v", p.stage, p.activity)
	if p.claim != unclaimed {
		s += ", " + p.claim.String()
	}
	if p.news {
		s += ", pending " + describeUpdate(&p.pending)
	}
	if p.end.grace > 0 {
		s += fmt.Sprintf(", grace %d", p.end.grace)
	}
	for _, why := range []struct {
		set  bool
		name string
	}{{p.why.deleted, "deleted"}, {p.why.evicted, "evicted"}, {p.why.runtime, "seen in runtime"}} {
		if why.set {
			s += ", " + why.name
		}
	}
	if p.waitFor != "" {
		s += ", waits for " + p.waitFor
	}
	return s
}

// The same arguments give the same answer.
func TestStepIsPure(t *testing.T) {
	at := time.Unix(1, 0)
	grace := int64(5)
	kill := Update{Type: KillUpdate, Pod: &v1.Pod{}, Kill: &KillOptions{Why: podlife.Cause{Grace: &grace}}}
	var a, b state
	for _, s := range []*state{&a, &b} {
		fx := step(s, updated{update: kill, first: true}, at, false)
		if !slices.Equal(fx, []effect{deliver{interrupt: true}}) {
			t.Errorf("effects %+v", fx)
		}
	}
	if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
		t.Errorf("states differ:\n%+v\n%+v", a, b)
	}
	if kill.Kill == nil {
		t.Error("the caller's update was changed")
	}
}
