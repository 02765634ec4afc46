package podworker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The histories in testdata/manager drive a Manager with its workers, and show
// what its syncer sees and what State says afterwards. Time is that of a
// bubble, and delays have no jitter. Commands:
//
//	starts N                      Config.FirstSyncs; only as the first
//	run                           Run is called
//	create|config|sync|kill U     an update, see command.update
//	done U [terminal] [acted] [error=E] [panic=P] [network] [retry=D]
//	                              the call in flight for U returns
//	stubborn U                    it does not return when it is cancelled
//	resync U, known U..., tick D, shut
func TestManagerHistories(t *testing.T) {
	runScripts(t, "manager", func(t *testing.T, script func(func([]command) string)) {
		synctest.Test(t, func(t *testing.T) {
			h := &managerHistory{
				t: t, begin: time.Now(), flights: map[types.UID]*flight{}, stubborn: map[types.UID]bool{},
				shown: map[types.UID]string{}, starts: 4,
			}
			script(h.block)
			h.end()
		})
	})
}

type managerHistory struct {
	t      *testing.T
	m      *Manager
	begin  time.Time
	starts int
	shown  map[types.UID]string
	cancel context.CancelFunc
	ended  chan struct{}
	dones  []pendingDone

	mu       sync.Mutex
	commands int // so far
	flights  map[types.UID]*flight
	stubborn map[types.UID]bool
	lines    []line
}

// line is something that happened. Those of one command and one time are shown
// pod by pod: workers run in no order.
type line struct {
	command  int
	at       time.Duration
	uid      types.UID
	happened string
}

// flight is a call of the syncer that has not returned.
type flight struct {
	land chan command
}

type pendingDone struct {
	name string
	c    chan struct{}
}

func (h *managerHistory) note(uid types.UID, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(uid, format, args...)
}

func (h *managerHistory) noteLocked(uid types.UID, format string, args ...any) {
	h.lines = append(h.lines, line{h.commands, time.Since(h.begin), uid, fmt.Sprintf(format, args...)})
}

// fly is a call of the syncer: it returns as the script says, or when it is
// cancelled.
func (h *managerHistory) fly(ctx context.Context, k Kind, w Work) (Outcome, error) {
	uid := types.UID("")
	if w.Pod != nil {
		uid = w.Pod.UID
	} else {
		uid = w.RuntimePod.UID
	}
	f := &flight{land: make(chan command)}
	h.mu.Lock()
	h.flights[uid] = f
	h.mu.Unlock()
	h.note(uid, "%s", describeTurn(&turn{kind: k, work: w}, h.begin))
	defer func() {
		h.mu.Lock()
		delete(h.flights, uid)
		h.mu.Unlock()
	}()
	select {
	case c := <-f.land:
		return h.land(c)
	case <-ctx.Done():
	}
	h.note(uid, "cancelled")
	h.mu.Lock()
	stubborn := h.stubborn[uid]
	h.mu.Unlock()
	if stubborn {
		return h.land(<-f.land)
	}
	return Outcome{}, ctx.Err()
}

// land returns from a call as a done command says.
func (h *managerHistory) land(c command) (Outcome, error) {
	var err error
	switch {
	case c.has("panic"):
		panic(c.options["panic"])
	case c.has("network"):
		err = fmt.Errorf("sync: %w", ErrNetworkNotReady)
	case c.has("retry"):
		err = askedRetry(time.Now().Add(c.duration(h.t, c.options["retry"])))
	case c.has("error"):
		err = errors.New(c.options["error"])
	}
	return Outcome{Terminal: c.has("terminal"), Acted: c.has("acted")}, err
}

func (h *managerHistory) SyncPod(ctx context.Context, w Work) (Outcome, error) {
	return h.fly(ctx, Sync, w)
}

func (h *managerHistory) SyncTerminatingPod(ctx context.Context, w Work) error {
	_, err := h.fly(ctx, Terminating, w)
	return err
}

func (h *managerHistory) SyncTerminatingRuntimePod(ctx context.Context, w Work) error {
	_, err := h.fly(ctx, Terminating, w)
	return err
}

func (h *managerHistory) SyncTerminatedPod(ctx context.Context, w Work) error {
	_, err := h.fly(ctx, Terminated, w)
	return err
}

func (h *managerHistory) block(commands []command) string {
	h.mu.Lock()
	h.lines = nil
	h.mu.Unlock()
	for _, c := range commands {
		h.mu.Lock()
		h.commands++
		h.mu.Unlock()
		h.command(c)
		synctest.Wait()
		h.dones = slices.DeleteFunc(h.dones, func(d pendingDone) bool {
			select {
			case <-d.c:
				h.note(types.UID(d.name), "is closed")
				return true
			default:
				return false
			}
		})
	}
	var out strings.Builder
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.command, b.command), cmp.Compare(a.at, b.at), cmp.Compare(a.uid, b.uid))
	})
	for _, l := range h.lines {
		fmt.Fprintf(&out, "%v %s: %s\n", l.at, l.uid, l.happened)
	}
	h.states(&out)
	return out.String()
}

func (h *managerHistory) manager() *Manager {
	if h.m != nil {
		return h.m
	}
	m, err := New(Config{Syncer: h, FirstSyncs: h.starts})
	if err != nil {
		h.t.Fatal(err)
	}
	m.jitter = func(d time.Duration) time.Duration { return d }
	h.m = m
	return m
}

func (h *managerHistory) command(c command) {
	uid := types.UID(c.who)
	switch c.verb {
	case "starts":
		n, err := strconv.Atoi(c.who)
		if err != nil {
			h.t.Fatal(err)
		}
		h.starts = n
	case "run":
		h.run()
	case "create", "config", "sync", "kill":
		h.manager().Update(c.update(h.t, time.Now(), func(name string) chan<- struct{} {
			d := make(chan struct{})
			h.dones = append(h.dones, pendingDone{name, d})
			return d
		}))
	case "done":
		h.mu.Lock()
		f := h.flights[uid]
		h.mu.Unlock()
		if f == nil {
			h.t.Fatalf("%s is not being called", uid)
		}
		f.land <- c
	case "stubborn":
		h.mu.Lock()
		h.stubborn[uid] = true
		h.mu.Unlock()
	case "resync":
		h.m.Resync(uid)
	case "known":
		h.known(c.rest)
	case "tick":
		time.Sleep(c.duration(h.t, c.who))
	case "shut":
		h.cancel()
	default:
		h.t.Fatalf("unknown command %q", c.verb)
	}
}

func (h *managerHistory) run() {
	ctx, cancel := context.WithCancel(h.t.Context())
	h.cancel, h.ended = cancel, make(chan struct{})
	m := h.manager()
	go func() {
		defer close(h.ended)
		_ = m.Run(ctx) // always nil
	}()
}

func (h *managerHistory) end() {
	h.cancel()
	<-h.ended
}

func (h *managerHistory) known(wanted []string) {
	var desired []*v1.Pod
	for _, uid := range wanted {
		desired = append(desired, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}})
	}
	// What follows from the question is noted after the answer.
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.m.SyncKnownPods(desired)
	for _, uid := range slices.Sorted(maps.Keys(known)) {
		h.noteLocked(uid, "is known: %v", known[uid])
	}
}

// states shows the pods of which the state changed.
func (h *managerHistory) states(out *strings.Builder) {
	now := map[types.UID]string{}
	if h.m != nil {
		for _, s := range h.m.List() {
			now[s.UID] = h.describe(&s)
		}
	}
	for uid := range h.shown {
		if _, ok := now[uid]; !ok {
			now[uid] = "gone"
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(now)) {
		if now[uid] != h.shown[uid] {
			fmt.Fprintf(out, "%s: %s\n", uid, now[uid])
		}
		h.shown[uid] = now[uid]
		if now[uid] == "gone" {
			delete(h.shown, uid)
		}
	}
}

func (h *managerHistory) describe(s *Status) string {
	line := s.Kind.String()
	if s.Finished {
		line = "finished"
	}
	if s.Doing != "" {
		line += ", " + s.Doing
	}
	if s.WaitingFor != "" {
		line += ", waits for " + s.WaitingFor
	}
	if !s.NextAt.IsZero() {
		line += fmt.Sprintf(", %s at %v", s.NextReason, s.NextAt.Sub(h.begin))
	}
	if s.LastError != "" {
		line += fmt.Sprintf(", %d failures: %s", s.Failures, s.LastError)
	}
	return line
}
