package otlp

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/record"
)

// span is a span that has ended.
type span struct {
	place

	name     string
	from, to time.Time
	parent   trace.SpanID // zero: none
	attrs    []attribute.KeyValue
	failed   string // why; "" if it did not fail
}

// place identifies a span.
type place struct {
	trace trace.TraceID
	id    trace.SpanID
}

// builder makes spans from facts. It stores the unfinished work of each pod's sync.
type builder struct {
	on   bool
	pods map[life]*syncing
}

// maxPods limits the pods of which a builder stores data.
const maxPods = 8192

// life identifies one life of a pod; see podlife.Life.
type life struct {
	uid types.UID
	n   uint32
}

// syncing is a sync that has not ended yet.
type syncing struct {
	did bool // the sync did something, so it gets a span
	place
	starts map[string]start // containers that are being started, by name
}

// start is the decision to start a container, and the sync that made it.
type start struct {
	at time.Time
	place
}

// add returns the spans that end with an entry. changed reports that the entry is not a repeated
// state.
func (b *builder) add(e *record.Entry, changed bool) []span {
	if !b.on || e.Pod.UID == "" {
		return nil
	}
	key := life{e.Pod.UID, e.Pod.Life}
	s := b.pods[key]
	if s == nil {
		if len(b.pods) >= maxPods {
			clear(b.pods)
		}
		s = &syncing{}
		b.pods[key] = s
	}
	f, ends := e.Fact.(*record.Sync)
	switch {
	case ends && (s.did || changed && f.Reason != "" || terminates(f)):
		out := s.end(e, f)
		if f.Call == terminated && f.Reason == "" {
			delete(b.pods, key)
		}
		return out
	case ends || !changed:
		return nil
	}
	switch f := e.Fact.(type) {
	case *record.Verdict:
		s.begin(e)
	case *record.Decision:
		s.decide(e, f)
	case *record.SandboxRun:
		return s.call(e, "runtime.v1.RuntimeService/RunPodSandbox", f.Took, f.Error)
	case *record.Image:
		if f.Took > 0 || f.Reason != "" {
			return s.call(e, "runtime.v1.ImageService/PullImage", f.Took, because(f.Reason, f.Error), attribute.String("container.image.name", f.Image))
		}
	case *record.Instance:
		return s.instance(e, f)
	case *record.Probe:
		if !f.OK {
			return probe(e, f)
		}
	}
	return nil
}

// The calls of a pod worker that end a pod: they always do something.
const terminating, terminated = "syncTerminatingPod", "syncTerminatedPod"

func terminates(f *record.Sync) bool { return f.Call == terminating || f.Call == terminated }

// begin records that the sync does something.
func (s *syncing) begin(e *record.Entry) {
	if !s.did {
		s.did, s.place = true, place{traceOf(e), spanID()}
	}
}

// end returns the span of the sync.
func (s *syncing) end(e *record.Entry, f *record.Sync) []span {
	s.begin(e)
	s.did = false
	name := f.Call
	if name == "" {
		name = "syncPod"
	}
	return []span{{place: s.place, name: name, from: e.At.Add(-f.Took), to: e.At, attrs: attributes(e), failed: because(f.Reason, f.Error)}}
}

// decide records which containers are being started.
func (s *syncing) decide(e *record.Entry, f *record.Decision) {
	r := &f.Result
	does := r.Make || len(r.Reset)+len(r.Surplus) > 0
	for _, list := range [][]record.Act{r.Init, r.Regular} {
		for _, a := range list {
			does = does || a.Do == "start" || a.Do == "end"
		}
	}
	if !does {
		return
	}
	s.begin(e)
	for _, list := range [][]record.Act{r.Init, r.Regular} {
		for _, a := range list {
			if a.Do != "start" {
				continue
			}
			if s.starts == nil {
				s.starts = map[string]start{}
			}
			s.starts[a.Name] = start{e.At, s.place}
		}
	}
}

// call returns the span of a call of the runtime.
func (s *syncing) call(e *record.Entry, name string, took time.Duration, failed string, attrs ...attribute.KeyValue) []span {
	s.begin(e)
	return []span{{place: place{s.trace, spanID()}, parent: s.id, name: name, from: e.At.Add(-took), to: e.At, attrs: attributes(e, attrs...), failed: failed}}
}

// instance returns the spans that end with the start or the end of a container.
func (s *syncing) instance(e *record.Entry, f *record.Instance) (out []span) {
	attrs := attributes(e, attribute.String("container.id", f.ID), attribute.String("container.image.name", f.Image), attribute.Int("k8s.container.restart_count", int(f.Restarts)))
	// A second is allowed, since the runtime's clock may differ from the agent's.
	if begin, ok := s.starts[e.Container]; ok && !f.Started.Before(begin.at.Add(-time.Second)) {
		delete(s.starts, e.Container)
		out = append(out, span{
			place: place{begin.trace, spanID()}, parent: begin.id, name: "start container",
			from: begin.at, to: later(begin.at, f.Started), attrs: attrs,
		})
	}
	if f.State != "exited" || f.Started.IsZero() || f.Finished.IsZero() {
		return out
	}
	run := span{place: place{trace: traceOf(e)}, name: "run container", from: f.Started, to: later(f.Started, f.Finished), attrs: attrs}
	// After a restart the agent records the end again. The span then has the same ID.
	run.id = trace.SpanID(digest(string(e.Pod.UID), e.Container, f.ID)[:8])
	if f.Reason != "" {
		run.attrs = append(run.attrs, attribute.String("k8s.container.status.last_terminated_reason", f.Reason))
	}
	if f.ExitCode != nil {
		run.attrs = append(run.attrs, attribute.Int("process.exit.code", int(*f.ExitCode)))
		if *f.ExitCode != 0 {
			run.failed = because(f.Reason, fmt.Sprintf("exit code %d", *f.ExitCode))
		}
	}
	return append(out, run)
}

// probe returns one span for a failed probe, from its start to its result.
func probe(e *record.Entry, f *record.Probe) []span {
	attrs := attributes(e, attribute.String("container.id", f.ID), attribute.Int("nodewright.probe.failures", f.Times))
	if f.Target != "" {
		attrs = append(attrs, attribute.String("nodewright.probe.target", f.Target))
	}
	failed := f.Error
	if f.Code > 0 {
		attrs = append(attrs, attribute.Int("http.response.status_code", f.Code))
		failed = fmt.Sprintf("HTTP %d", f.Code)
	}
	if failed == "" {
		failed = "failed"
	}
	from := f.Since
	if from.IsZero() || from.After(e.At) {
		from = e.At
	}
	return []span{{place: place{traceOf(e), spanID()}, name: f.Type + " probe", from: from, to: e.At, attrs: attrs, failed: failed}}
}

// attributes returns the attributes of an entry's pod and container, by OpenTelemetry's
// conventions and with the kubelet's names.
func attributes(e *record.Entry, more ...attribute.KeyValue) []attribute.KeyValue {
	if e.Pod.UID == "" {
		return more
	}
	out := []attribute.KeyValue{
		attribute.String("k8s.pod.uid", string(e.Pod.UID)), attribute.String("k8s.pod", e.Pod.Namespace+"/"+e.Pod.Name),
		attribute.String("k8s.pod.name", e.Pod.Name), attribute.String("k8s.namespace.name", e.Pod.Namespace),
	}
	if e.Container != "" {
		out = append(out, attribute.String("k8s.container.name", e.Container))
	}
	return append(out, more...)
}

// traceOf returns the ID of an entry's trace, which has its pod's life on one day. It is zero for
// an entry without a pod.
func traceOf(e *record.Entry) (id trace.TraceID) {
	if e.Pod.UID != "" {
		copy(id[:], digest(string(e.Pod.UID), strconv.FormatUint(uint64(e.Pod.Life), 10), e.At.UTC().Format(time.DateOnly)))
	}
	return id
}

// digest returns a hash of some names.
func digest(names ...string) []byte {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return sum[:]
}

// spanID returns a new ID.
func spanID() (id trace.SpanID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// because returns a reason with a word for the error; "" without both.
func because(reason, word string) string {
	if reason != "" && word != "" {
		return reason + ": " + word
	}
	return reason + word
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
