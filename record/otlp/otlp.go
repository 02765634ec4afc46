package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/record"
)

// Config configures an Exporter. The zero value of every field means the default named beside it.
type Config struct {
	// Endpoint is the collector's gRPC address, as host:port or another target of gRPC;
	// localhost:4317.
	Endpoint string
	TLS      *tls.Config // plain text, as the kubelet's tracing
	// SamplesPerMillion is how many of a million traces are sent; all of them. A negative number
	// sends none. Logs are always sent.
	SamplesPerMillion int
	// Node and Version are the node's name and the version of the program, as attributes of the
	// resource. None.
	Node, Version string

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

const (
	defaultEndpoint = "localhost:4317"

	// maxQueue and maxQueueBytes limit the entries that wait for the collector.
	maxQueue      = 4096
	maxQueueBytes = 4 << 20
	// perEntry is the memory of an entry beside its fact, roughly.
	perEntry = 512

	// maxBatch and maxBatchBytes limit a request: collectors take 4 MiB by default.
	maxBatch      = 512
	maxBatchBytes = 1 << 20

	// Entries are collected for this time before they are sent.
	sendPause = time.Second
	// sendTime limits a request with its retries. stopTime limits all requests after the end of
	// Run's context.
	sendTime = 10 * time.Second
	stopTime = 2 * time.Second
)

// Exporter sends entries to a collector. It is a Part with a Run for an agent of this module: see
// package agent/part.
type Exporter struct {
	cfg  Config
	met  *metrics
	wake wake.Signal
	// open opens the connection.
	open func(*Config) (*sender, error)

	mu      sync.Mutex // held for memory only
	changes record.Changes
	// news has the pods with queued entries since their last sync.
	news  map[life]bool
	queue []queued
	bytes int
	lost  int
}

// queued is an entry that waits for the collector.
type queued struct {
	record.Entry
	fact    []byte // in JSON
	changed bool
}

// New checks cfg and returns an Exporter. It opens no connection before [Exporter.Run].
func New(cfg Config) (*Exporter, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = defaultEndpoint
	}
	if cfg.SamplesPerMillion == 0 {
		cfg.SamplesPerMillion = million
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.SamplesPerMillion > million {
		errs = append(errs, fmt.Errorf("Config.SamplesPerMillion is %d; at most %d are allowed", cfg.SamplesPerMillion, million))
	}
	if err := checkEndpoint(cfg.Endpoint); err != nil {
		errs = append(errs, fmt.Errorf("Config.Endpoint is %q; a target of gRPC such as collector:4317 is required: %w", cfg.Endpoint, err))
	}
	met, err := newMetrics(cfg.Metrics)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	return &Exporter{cfg: cfg, met: met, wake: wake.New(), news: map[life]bool{}, open: func(c *Config) (*sender, error) { return dial(c) }}, nil
}

// checkEndpoint parses a target of gRPC. It connects to nothing.
func checkEndpoint(target string) error {
	if strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://") {
		return errors.New("HTTP is not supported")
	}
	conn, err := grpc.NewClient(target, transport(nil))
	if err != nil {
		return err
	}
	return conn.Close()
}

// Name returns the name of the part.
func (*Exporter) Name() string { return "otlp" }

// Record sends an entry, unless it is a state that was sent already. It sets At. It never waits: an
// entry that does not fit into the queue is dropped and counted. It may be called from any
// goroutine, before, during and after Run. The Fact is not changed afterwards.
func (x *Exporter) Record(e record.Entry) {
	f, ends := e.Fact.(*record.Sync)
	pod := life{e.Pod.UID, e.Pod.Life}
	x.mu.Lock()
	defer x.mu.Unlock()
	fact, changed := x.changes.Next(&e)
	// A span may end with a repeated state of the sync.
	if !changed && !(ends && (x.news[pod] || terminates(f))) {
		return
	}
	if ends {
		delete(x.news, pod)
	} else if len(x.news) < maxPods {
		x.news[pod] = true
	}
	e.At = time.Now()
	if len(x.queue) >= maxQueue || x.bytes+len(fact)+perEntry > maxQueueBytes {
		if changed {
			x.changes.Forget(&e)
			x.lost++
			x.met.dropped.WithLabelValues("entries").Inc()
		}
		return
	}
	x.queue, x.bytes = append(x.queue, queued{e, fact, changed}), x.bytes+len(fact)+perEntry
	x.wake.Set()
}

// take returns the entries of the queue and how many were dropped since, and empties the queue.
func (x *Exporter) take() (entries []queued, lost int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	entries, lost = x.queue, x.lost
	x.queue, x.bytes, x.lost = nil, 0, 0
	return entries, lost
}

// Run sends entries until ctx ends, and for two seconds after that. A collector that fails is
// logged once. Run may be called once.
func (x *Exporter) Run(ctx context.Context) error {
	s, err := x.open(&x.cfg)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	defer s.close()
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-ctx.Done():
		case <-stopped:
			return
		}
		select {
		case <-time.After(stopTime):
			cancel()
		case <-stopped:
		}
	}()
	b := builder{pods: map[life]*syncing{}, on: x.cfg.SamplesPerMillion > 0}
	for {
		select {
		case <-ctx.Done():
		case <-x.wake:
		}
		select { // a sync has several facts
		case <-ctx.Done():
		case <-time.After(sendPause):
		}
		x.flush(sending, s, &b)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// flush sends the queue in batches.
func (x *Exporter) flush(ctx context.Context, s *sender, b *builder) {
	entries, lost := x.take()
	if lost > 0 {
		gap := record.Entry{At: time.Now(), Fact: &record.Gap{Lost: lost}}
		fact, _ := new(record.Changes).Next(&gap)
		entries = append(entries, queued{gap, fact, true})
	}
	n, size := 0, 0
	for i := range entries {
		q := &entries[i]
		for _, sp := range b.add(&q.Entry, q.changed) {
			s.span(sp)
		}
		if q.changed {
			s.log(q)
			n, size = n+1, size+len(q.fact)
		}
		if n >= maxBatch || size >= maxBatchBytes || i == len(entries)-1 {
			send(ctx, x, &s.traces)
			send(ctx, x, &s.logs)
			n, size = 0, 0
		}
	}
}
