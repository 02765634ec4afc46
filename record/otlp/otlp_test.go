package otlp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	collectorlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/record"
)

// collector is an OpenTelemetry collector that keeps what it gets.
type collector struct {
	// answer decides about each request; nil takes all of them.
	answer func(context.Context) error

	mu       sync.Mutex
	resource *resourcepb.Resource
	spans    []*tracepb.Span
	logs     []*logspb.LogRecord
	requests int
}

func (c *collector) ask(ctx context.Context) error {
	c.mu.Lock()
	c.requests++
	c.mu.Unlock()
	if c.answer == nil {
		return nil
	}
	return c.answer(ctx)
}

func (c *collector) serve(t *testing.T, l net.Listener) {
	t.Helper()
	s := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(s, traces{collector: c})
	collectorlogs.RegisterLogsServiceServer(s, logs{collector: c})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// traces and logs are the services of a collector.
type (
	traces struct {
		collectortrace.UnimplementedTraceServiceServer
		*collector
	}
	logs struct {
		collectorlogs.UnimplementedLogsServiceServer
		*collector
	}
)

func (s traces) Export(ctx context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	if err := s.ask(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range r.GetResourceSpans() {
		s.resource = rs.GetResource()
		for _, ss := range rs.GetScopeSpans() {
			s.spans = append(s.spans, ss.GetSpans()...)
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

func (s logs) Export(ctx context.Context, r *collectorlogs.ExportLogsServiceRequest) (*collectorlogs.ExportLogsServiceResponse, error) {
	if err := s.ask(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rl := range r.GetResourceLogs() {
		for _, sl := range rl.GetScopeLogs() {
			s.logs = append(s.logs, sl.GetLogRecords()...)
		}
	}
	return &collectorlogs.ExportLogsServiceResponse{}, nil
}

func newExporter(t *testing.T, cfg Config) *Exporter {
	t.Helper()
	x, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// inBubble returns an exporter with a collector in memory, for a test with virtual time.
func inBubble(t *testing.T, c *collector, cfg Config) *Exporter {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	c.serve(t, l)
	cfg.Endpoint = "passthrough:///collector"
	x := newExporter(t, cfg)
	x.open = func(cfg *Config) (*sender, error) {
		return dial(cfg, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	}
	return x
}

// during runs the exporter while do is called, and returns how long the stop took.
func during(t *testing.T, x *Exporter, do func()) time.Duration {
	t.Helper()
	stop := testrun.Start(t, x.Run)
	do()
	begin := time.Now()
	stop()
	return time.Since(begin)
}

var web = record.Pod{Namespace: "shop", Name: "web", UID: "uid-1"}

func of(container string, f record.Fact) record.Entry {
	return record.Entry{Pod: web, Container: container, Fact: f}
}

// aLife returns the facts of a pod that starts, fails its probe and is restarted.
func aLife(now time.Time) []record.Entry {
	code := int32(137)
	decision := &record.Decision{Inputs: "1", Result: record.Result{Make: true, Regular: []record.Act{{Name: "app", Do: "start"}}}}
	return []record.Entry{
		of("", &record.Wanted{Op: "ADD", Source: "file"}),
		of("", &record.Verdict{Admitted: true}),
		of("", decision),
		of("", &record.SandboxRun{ID: "s", Took: 2 * time.Second}),
		of("app", &record.Image{Image: "web:1", Took: 3 * time.Second}),
		of("", &record.Sync{Call: "syncPod", Took: 6 * time.Second}),
		of("app", &record.Instance{ID: "a", State: "running", Image: "web:1", Started: now}),
		of("", &record.Sync{Call: "syncPod", Took: time.Millisecond}), // did nothing
		of("app", &record.Probe{ID: "a", Type: "liveness", How: "http", Target: "10.1.2.3:8080/healthz", Times: 3, Since: now.Add(-time.Second), Code: 503}),
		of("app", &record.Instance{ID: "a", State: "exited", Image: "web:1", Started: now, Finished: now.Add(time.Minute), ExitCode: &code, Reason: "OOMKilled"}),
		of("app", &record.Image{Image: "web:2", Reason: "ErrImagePull", Error: "not found"}),
		of("", &record.Sync{Call: "syncPod", Reason: "ErrImagePull", Error: "not found", Took: time.Second}),
		of("", &record.Verdict{Reason: "Evicted"}),
		of("", &record.Sync{Call: "syncTerminatingPod", Took: time.Second}),
	}
}

// describe returns a span in a line, with the name of its parent.
func describe(s *tracepb.Span, all []*tracepb.Span) string {
	out := s.GetName()
	for _, p := range all {
		if string(p.GetSpanId()) == string(s.GetParentSpanId()) {
			out = p.GetName() + " > " + out
		}
	}
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		out += " (" + s.GetStatus().GetMessage() + ")"
	}
	return out + " " + (time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano())).Round(time.Second).String()
}

func count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func attr(list []*commonpb.KeyValue, key string) string {
	for _, kv := range list {
		if kv.GetKey() == key {
			return kv.GetValue().GetStringValue()
		}
	}
	return ""
}

// A collector over TCP gets a pod's life: spans with the kubelet's names, in one trace, and each
// changed fact as a log of that trace.
func TestCollectorGetsLife(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{}
	c.serve(t, l)
	x := newExporter(t, Config{Endpoint: l.Addr().String(), Node: "edge-7", Version: "v1"})
	during(t, x, func() {
		for _, e := range aLife(time.Now()) {
			x.Record(e)
			x.Record(e) // the agent tells states again and again
		}
		x.Record(record.Entry{Fact: &record.Happened{Reason: "SystemOOM"}})
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	ids := map[string]bool{}
	for _, s := range c.spans {
		got = append(got, describe(s, c.spans))
		ids[string(s.GetTraceId())] = true
		if attr(s.GetAttributes(), "k8s.pod.uid") != "uid-1" || attr(s.GetAttributes(), "k8s.pod") != "shop/web" {
			t.Errorf("%s has the attributes %v", s.GetName(), s.GetAttributes())
		}
	}
	if len(ids) != 1 {
		t.Errorf("%d traces, want 1", len(ids))
	}
	for _, want := range []string{
		"syncPod > runtime.v1.RuntimeService/RunPodSandbox 2s",
		"syncPod > runtime.v1.ImageService/PullImage 3s",
		"syncPod 6s",
		"syncPod > start container 0s",
		"liveness probe (HTTP 503) 1s",
		"run container (OOMKilled: exit code 137) 1m0s",
		"syncPod > runtime.v1.ImageService/PullImage (ErrImagePull: not found) 0s",
		"syncPod (ErrImagePull: not found) 1s",
		"syncTerminatingPod 1s",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no span %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if attr(c.resource.GetAttributes(), "k8s.node.name") != "edge-7" || attr(c.resource.GetAttributes(), "service.name") != "nodewright" {
		t.Errorf("resource %v", c.resource)
	}
	kinds := map[string]int{}
	for _, r := range c.logs {
		kinds[r.GetEventName()]++
		if r.GetEventName() == "happened" {
			if len(r.GetTraceId()) != 0 || attr(r.GetAttributes(), "k8s.pod.uid") != "" {
				t.Errorf("a log of the node is one of a pod: %v", r)
			}
			continue
		}
		if !ids[string(r.GetTraceId())] || attr(r.GetAttributes(), "k8s.pod.name") != "web" {
			t.Errorf("log %v is not of the pod's trace", r)
		}
		if r.GetEventName() == "probe" && (r.GetSeverityNumber() != logspb.SeverityNumber_SEVERITY_NUMBER_WARN || !strings.Contains(r.GetBody().GetStringValue(), `"code":503`)) {
			t.Errorf("probe: %v", r)
		}
	}
	if kinds["decision"] != 1 || kinds["probe"] != 1 || kinds["verdict"] != 2 || kinds["happened"] != 1 {
		t.Errorf("logs by kind: %v", kinds)
	}
	if sent := count(t, x.met.sent.WithLabelValues("logs")); int(sent) != len(c.logs) {
		t.Errorf("%v logs counted as sent, %d arrived", sent, len(c.logs))
	}
}

// A pod whose source drops it has spans of its end, though its syncs succeeded before and after.
func TestEndHasSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		x := inBubble(t, c, Config{})
		during(t, x, func() {
			for _, f := range []record.Fact{
				&record.Sync{Call: "syncPod"}, &record.Wanted{Op: "REMOVE"}, &record.Sync{Call: "syncTerminatingPod", Took: 2 * time.Second}, &record.Sync{Call: "syncTerminatedPod", Took: time.Second},
			} {
				x.Record(of("", f))
				time.Sleep(5 * time.Second)
			}
		})
		var got []string
		for _, s := range c.spans {
			got = append(got, describe(s, c.spans))
		}
		if want := []string{"syncTerminatingPod 2s", "syncTerminatedPod 1s"}; !slices.Equal(got, want) {
			t.Errorf("spans %q, want %q", got, want)
		}
	})
}

func TestNegativeSampleHasLogsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		x := inBubble(t, c, Config{SamplesPerMillion: -1})
		during(t, x, func() {
			for _, e := range aLife(time.Now()) {
				x.Record(e)
			}
			time.Sleep(5 * time.Second)
		})
		if len(c.spans) > 0 || len(c.logs) == 0 {
			t.Errorf("%d spans and %d logs, want logs only", len(c.spans), len(c.logs))
		}
	})
}

// A collector that hangs holds up neither Record nor the stop. The queue is bounded, and what does
// not fit is counted, and told once the collector answers.
func TestCollectorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := &collector{answer: func(ctx context.Context) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		x := inBubble(t, c, Config{})
		code := int32(0)
		fill := func() {
			for i := range 3 * maxQueue {
				x.Record(of("app", &record.Instance{ID: fmt.Sprint(i), State: "exited", ExitCode: &code}))
			}
		}
		during(t, x, func() {
			x.Record(of("", &record.Verdict{Admitted: true}))
			time.Sleep(2 * sendPause) // a request hangs
			begin := time.Now()
			fill()
			if took := time.Since(begin); took > 0 {
				t.Errorf("Record waited for %v", took)
			}
			x.mu.Lock()
			n, bytes := len(x.queue), x.bytes
			x.mu.Unlock()
			if n != maxQueue || bytes > maxQueueBytes {
				t.Errorf("%d entries and %d bytes wait", n, bytes)
			}
			if lost := count(t, x.met.dropped.WithLabelValues("entries")); lost != 2*maxQueue {
				t.Errorf("%v entries counted as dropped, want %d", lost, 2*maxQueue)
			}
			time.Sleep(sendTime)
			if n := count(t, x.met.dropped.WithLabelValues("logs")); n != 1 {
				t.Errorf("%v logs dropped after the request's time, want 1", n)
			}
			close(release)
			time.Sleep(time.Minute)
			// The states that did not fit are told again, and are sent then.
			fill()
			time.Sleep(time.Minute)
		})
		gaps, instances := 0, map[string]bool{}
		for _, r := range c.logs {
			switch r.GetEventName() {
			case "gap":
				gaps++
			case "instance":
				instances[r.GetBody().GetStringValue()] = true
			}
		}
		if gaps == 0 || len(instances) < 2*maxQueue {
			t.Errorf("%d gaps and %d instances arrived", gaps, len(instances))
		}
	})
}

// The stop waits no longer than stopTime for a collector.
func TestStopWhileCollectorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := inBubble(t, &collector{answer: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}, Config{})
		took := during(t, x, func() {
			x.Record(of("", &record.Verdict{Admitted: true}))
			time.Sleep(sendPause + time.Second)
			for i := range maxQueue {
				x.Record(of("app", &record.Instance{ID: fmt.Sprint(i), State: "running"}))
			}
		})
		if took > stopTime {
			t.Errorf("the stop took %v, want at most %v", took, stopTime)
		}
	})
}

// A collector that refuses or is not there costs drops, and one line in the log.
func TestCollectorFails(t *testing.T) {
	for name, answer := range map[string]func(context.Context) error{
		"refuses":     func(context.Context) error { return status.Error(codes.PermissionDenied, "no") },
		"unavailable": func(context.Context) error { return status.Error(codes.Unavailable, "later") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := inBubble(t, &collector{answer: answer}, Config{})
				during(t, x, func() {
					for i := range 3 {
						x.Record(of("app", &record.Instance{ID: fmt.Sprint(i), State: "running"}))
						time.Sleep(time.Minute)
					}
				})
				if n := count(t, x.met.dropped.WithLabelValues("logs")); n != 3 {
					t.Errorf("%v logs dropped, want 3", n)
				}
			})
		})
	}
	t.Run("is gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			x := newExporter(t, Config{Endpoint: "passthrough:///collector"})
			x.open = func(cfg *Config) (*sender, error) {
				return dial(cfg, grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("connection refused") }))
			}
			during(t, x, func() {
				x.Record(of("", &record.Verdict{Admitted: true}))
				time.Sleep(time.Minute)
			})
			if n := count(t, x.met.dropped.WithLabelValues("logs")); n != 1 {
				t.Errorf("%v logs dropped, want 1", n)
			}
		})
	})
}

// A collector without a service for a signal is asked again after a while only.
func TestUnwantedSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(context.Context) error { return status.Error(codes.Unimplemented, "no logs") }}
		x := inBubble(t, c, Config{})
		during(t, x, func() {
			for i := range 10 {
				x.Record(record.Entry{Fact: &record.Happened{Reason: fmt.Sprint("Reason", i)}})
				time.Sleep(2 * time.Minute)
			}
		})
		if c.requests != 2 {
			t.Errorf("%d requests in 20 minutes, want 2", c.requests)
		}
		if n := count(t, x.met.dropped.WithLabelValues("logs")); n != 0 {
			t.Errorf("%v logs counted as dropped", n)
		}
	})
}

// A request is smaller than what collectors take.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		x := inBubble(t, c, Config{})
		during(t, x, func() {
			for i := range 60 {
				x.Record(of("", &record.Verdict{Reason: fmt.Sprint("Reason", i), Message: strings.Repeat("x", 60<<10)}))
			}
			time.Sleep(time.Minute)
		})
		if len(c.logs) != 60 || c.requests < 4 {
			t.Errorf("%d logs in %d requests", len(c.logs), c.requests)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{Endpoint: "http://collector:4317"}, `Config.Endpoint is "http://collector:4317"; a target of gRPC such as collector:4317 is required`},
		{Config{SamplesPerMillion: 2_000_000}, "Config.SamplesPerMillion is 2000000; at most 1000000 are allowed"},
	} {
		if _, err := New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%+v) = %v, want %q", tc.cfg, err, tc.want)
		}
	}
}
