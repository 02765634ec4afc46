package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
)

func newGuard() *Guard {
	return &Guard{Log: zap.NewNop(), Panics: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "panics"}, []string{"of"})}
}

// holder is a Reserver that notes what becomes of its reservation.
type holder struct {
	name string
	log  *[]string

	reject  *part.Rejection
	commit  []error // of each attempt; nil after them
	panics  bool
	nothing bool
}

func (h *holder) Name() string     { return h.name }
func (*holder) Adopt(*v1.Pod)      {}
func (*holder) Waits(*v1.Pod) bool { return false }
func (h *holder) note(what string) { *h.log = append(*h.log, h.name+" "+what) }
func (h *holder) Release()         { h.note("release") }
func (h *holder) Commit(context.Context) (err error) {
	h.note("commit")
	if len(h.commit) > 0 {
		err, h.commit = h.commit[0], h.commit[1:]
	}
	return err
}

func (h *holder) Reserve(_ context.Context, r part.Request) (part.Reservation, *part.Rejection) {
	h.note(fmt.Sprintf("reserve after %d", len(r.Before)))
	if h.panics {
		panic("no")
	}
	if h.nothing || h.reject != nil {
		return nil, h.reject
	}
	return h, nil
}

func TestReserve(t *testing.T) {
	no := &part.Rejection{Reason: "No"}
	for _, tc := range []struct {
		name   string
		first  holder
		second holder
		want   string
		reason string
	}{
		{name: "both", want: "a reserve after 0, b reserve after 1, a commit, b commit"},
		{name: "nothing asked of the first", first: holder{nothing: true}, want: "a reserve after 0, b reserve after 0, b commit"},
		{name: "the second rejects", second: holder{reject: no}, want: "a reserve after 0, b reserve after 1, a release", reason: "No"},
		{
			name: "the second cannot commit", second: holder{commit: []error{errors.New("lost")}},
			want: "a reserve after 0, b reserve after 1, a commit, b commit, b release, a release", reason: "UnexpectedAdmissionError",
		},
		{
			name: "what the first has reserved changes", first: holder{commit: []error{fmt.Errorf("gone: %w", part.ErrChanged)}},
			want: "a reserve after 0, b reserve after 1, a commit, b release, a release, a reserve after 0, b reserve after 1, a commit, b commit",
		},
		{name: "the first rejects at last", first: holder{commit: []error{no}}, want: "a reserve after 0, b reserve after 1, a commit, b release, a release", reason: "No"},
		{name: "the second panics", second: holder{panics: true}, want: "a reserve after 0, b reserve after 1, a release", reason: "UnexpectedAdmissionError"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log []string
			tc.first.name, tc.first.log, tc.second.name, tc.second.log = "a", &log, "b", &log
			h, err := Find([]part.Part{&tc.first, &tc.second})
			if err != nil {
				t.Fatal(err)
			}
			held, r := h.Reserve(t.Context(), newGuard(), &v1.Pod{})
			reason := ""
			if r != nil {
				reason = r.Reason
			}
			if got := strings.Join(log, ", "); got != tc.want || reason != tc.reason {
				t.Errorf("got %s: %q\nwant %s: %q", got, reason, tc.want, tc.reason)
			}
			if (len(held) > 0) != (r == nil) {
				t.Errorf("%d reservations beside %v", len(held), r)
			}
		})
	}
}

// maker is a Creator.
type maker struct {
	name string
	log  *[]string
	err  error
}

func (m maker) Name() string { return m.name }
func (m maker) BeforeCreate(_ context.Context, c part.Container, conf *runtimeapi.ContainerConfig) (func(string, error), error) {
	*m.log = append(*m.log, m.name+" before "+c.Name)
	return func(id string, err error) { *m.log = append(*m.log, fmt.Sprintf("%s created %q %v", m.name, id, err)) }, m.err
}

// Whoever was called before a creation hears what came of it, also if a later one
// prevents it.
func TestLifecycle(t *testing.T) {
	var log []string
	busy := errors.New("busy")
	for _, last := range []error{nil, busy} {
		log = nil
		h, err := Find([]part.Part{maker{"a", &log, nil}, maker{"b", &log, last}})
		if err != nil {
			t.Fatal(err)
		}
		created, err := Lifecycle{newGuard(), h}.Creating(t.Context(), &v1.Pod{}, "c", nil)
		if !errors.Is(err, last) {
			t.Errorf("error %v, want %v", err, last)
		}
		if created != nil {
			created("id", nil)
		}
		want := []string{"a before c", "b before c", `a created "id" <nil>`, `b created "id" <nil>`}
		if last != nil {
			want = []string{"a before c", "b before c", `a created "" busy`, `b created "" busy`}
		}
		if !slices.Equal(log, want) {
			t.Errorf("calls %q, want %q", log, want)
		}
	}
}

func TestGuard(t *testing.T) {
	g := newGuard()
	err := g.Call("licence", func() error { panic("boom") })
	var p *PanicError
	if !errors.As(err, &p) || p.Who != "licence" || err.Error() != "licence panicked: boom" {
		t.Errorf("error %v", err)
	}
	var m dto.Metric
	if err := g.Panics.WithLabelValues("licence").Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
		t.Errorf("counted %v, %v; want one panic", m.GetCounter(), err)
	}
	if err := g.Call("x", func() error { return p }); !errors.Is(err, p) {
		t.Errorf("an error came back as %v", err)
	}
}
