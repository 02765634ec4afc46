package otlp

import (
	"context"
	"crypto/tls"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/record"
)

const (
	scope   = "github.com/nodewright/nodewright/record/otlp"
	million = 1_000_000
)

// sender makes spans and logs with the SDK, and sends them on request. The SDK's own batch
// processors would start goroutines, and drop data without a report.
type sender struct {
	tracer trace.Tracer
	logger log.Logger
	traces batch[sdktrace.ReadOnlySpan]
	logs   batch[sdklog.Record]
	close  func()
}

// dial connects to the collector. The connection is made with the first request.
func dial(cfg *Config, more ...grpc.DialOption) (*sender, error) {
	conn, err := grpc.NewClient(cfg.Endpoint, append(more, transport(cfg.TLS))...)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	spans, err := otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(conn), otlptracegrpc.WithTimeout(sendTime))
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	logs, err := otlploggrpc.New(ctx, otlploggrpc.WithGRPCConn(conn), otlploggrpc.WithTimeout(sendTime))
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newSender(cfg, spans.ExportSpans, logs.Export, func() { _ = conn.Close() }), nil
}

// transport returns the security of the connection.
func transport(conf *tls.Config) grpc.DialOption {
	if conf == nil {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(conf))
}

func newSender(cfg *Config, spans func(context.Context, []sdktrace.ReadOnlySpan) error, logs func(context.Context, []sdklog.Record) error, end func()) *sender {
	s := &sender{close: end}
	s.traces = batch[sdktrace.ReadOnlySpan]{name: "traces", export: spans}
	s.logs = batch[sdklog.Record]{name: "logs", export: logs}
	res := resource.NewSchemaless(attribute.String("service.name", "nodewright"), attribute.String("service.version", cfg.Version), attribute.String("k8s.node.name", cfg.Node))
	// OpenTelemetry's environment variables may set another name of the service. They are ignored
	// if their syntax is invalid.
	if env, err := resource.New(context.Background(), resource.WithFromEnv()); err == nil {
		if both, err := resource.Merge(res, env); err == nil {
			res = both
		}
	}
	s.tracer = sdktrace.NewTracerProvider(
		sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.TraceIDRatioBased(float64(cfg.SamplesPerMillion)/million)),
		sdktrace.WithIDGenerator(ids{}), sdktrace.WithSpanProcessor(ended{&s.traces}),
	).Tracer(scope)
	s.logger = sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithProcessor(emitted{&s.logs})).Logger(scope)
	return s
}

// span adds a span to the next batch.
func (s *sender) span(sp span) {
	ctx := context.WithValue(context.Background(), placeKey{}, sp.place)
	if sp.parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: sp.trace, SpanID: sp.parent, TraceFlags: trace.FlagsSampled}))
	}
	_, out := s.tracer.Start(ctx, sp.name, trace.WithTimestamp(sp.from), trace.WithAttributes(sp.attrs...))
	if sp.failed != "" {
		out.SetStatus(codes.Error, sp.failed)
	}
	out.End(trace.WithTimestamp(sp.to))
}

// log adds an entry to the next batch of logs.
func (s *sender) log(q *queued) {
	var r log.Record
	r.SetTimestamp(q.At)
	r.SetObservedTimestamp(q.At)
	r.SetEventName(q.Kind())
	r.SetBody(attribute.StringValue(string(q.fact)))
	r.SetSeverity(log.SeverityInfo)
	r.SetSeverityText("INFO")
	if problem(&q.Entry) {
		r.SetSeverity(log.SeverityWarn)
		r.SetSeverityText("WARN")
	}
	r.AddAttributes(attributes(&q.Entry)...)
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceOf(&q.Entry)}))
	s.logger.Emit(ctx, r)
}

// problem reports whether a fact is a failure or a problem.
func problem(e *record.Entry) bool {
	switch f := e.Fact.(type) {
	case *record.Gap, *record.Clock:
		return true
	case *record.Verdict:
		return !f.Admitted
	case *record.Instance:
		return f.State == "unknown" || f.ExitCode != nil && *f.ExitCode != 0
	case *record.Probe:
		return !f.OK
	case *record.Image:
		return f.Reason != ""
	case *record.Sync:
		return f.Reason != ""
	case *record.SandboxRun:
		return f.Error != ""
	case *record.Devices:
		return f.Unhealthy+f.Unknown > 0
	case *record.Condition:
		return f.On != (f.Type == "Ready")
	case *record.Plugin:
		return f.Gone
	}
	return false
}

// batch has the data of one signal of OpenTelemetry for the next request.
type batch[T any] struct {
	name   string
	export func(context.Context, []T) error
	items  []T

	failing  bool
	unwanted time.Time // time before which the signal is not sent again
}

// unwantedTime is how long a signal is not sent after the collector has answered that it does not
// support the signal.
const unwantedTime = 10 * time.Minute

// send sends a batch. Data that the collector does not accept is dropped.
func send[T any](ctx context.Context, x *Exporter, b *batch[T]) {
	items := b.items
	b.items = nil
	if len(items) == 0 || time.Now().Before(b.unwanted) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	err := b.export(ctx, items)
	log := x.cfg.Log.With(zap.String("signal", b.name), zap.String("endpoint", x.cfg.Endpoint))
	switch {
	case err == nil:
		x.met.sent.WithLabelValues(b.name).Add(float64(len(items)))
		if b.failing {
			log.Info("collector accepts data again")
		}
	case status.Code(err) == grpccodes.Unimplemented:
		b.unwanted = time.Now().Add(unwantedTime)
		if !b.failing {
			log.Info("collector does not support this signal", zap.Duration("askedAgainAfter", unwantedTime))
		}
	default:
		x.met.dropped.WithLabelValues(b.name).Add(float64(len(items)))
		if !b.failing {
			log.Warn("failed to send to the collector; data is dropped", zap.Error(err))
		}
	}
	b.failing = err != nil
}

// ended adds the SDK's sampled spans to a batch.
type ended struct{ *batch[sdktrace.ReadOnlySpan] }

func (e ended) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		e.items = append(e.items, s)
	}
}
func (ended) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (ended) Shutdown(context.Context) error                  { return nil }
func (ended) ForceFlush(context.Context) error                { return nil }

// emitted adds the SDK's logs to a batch.
type emitted struct{ *batch[sdklog.Record] }

func (e emitted) OnEmit(_ context.Context, r *sdklog.Record) error {
	e.items = append(e.items, r.Clone())
	return nil
}
func (emitted) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (emitted) Shutdown(context.Context) error                         { return nil }
func (emitted) ForceFlush(context.Context) error                       { return nil }

// placeKey is the key of a span's place in the context with which it is made.
type placeKey struct{}

// ids gives spans the IDs of their place.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	p, _ := ctx.Value(placeKey{}).(place)
	return p.trace, p.id
}

func (g ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}
