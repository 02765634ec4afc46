package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/retry"
)

// Log is the kernel's log, open for reading.
type Log interface {
	// Next waits for the next record and returns it in the format of /dev/kmsg, valid until the
	// next call. The error is ErrOverwritten if records were lost and reading can continue. Any
	// other error ends the log.
	Next() ([]byte, error)
	// Close makes a call of Next that waits return.
	io.Closer
}

// ErrOverwritten means that the kernel overwrote records before they were read.
var ErrOverwritten = errors.New("kernel log: records were overwritten before they were read")

// Fallback reports kills without the kernel's log; *Counters implements it.
type Fallback interface {
	// Watch calls on for each kill from now on, until ctx ends or it fails.
	Watch(ctx context.Context, on func(Kill)) error
}

// Config configures a [Watcher]. OnKill is required; the zero value of every other
// field means the default named beside it.
type Config struct {
	// OnKill is called for each kill since Run began, one after the other.
	OnKill func(Kill)

	// Open opens the kernel's log. The first time it opens it at its end; later it opens it at
	// its oldest record, so that nothing is missed. The default opens /dev/kmsg.
	Open func(fromEnd bool) (Log, error)
	// Fallback is used until Open succeeds for the first time. If it is nil, no kills are
	// reported until then. Afterwards it is not needed: a log that is opened again still has the
	// records that were written meanwhile.
	Fallback Fallback

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// firstRetry and lastRetry are the first and the longest wait before a log that failed is opened
// again. The wait doubles with each failure.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Watcher reports OOM kills to Config.OnKill, while Run runs.
type Watcher struct {
	cfg Config
	met *metrics

	// used only by Run's goroutine
	assembler Assembler
	opened    bool
	lastSeq   uint64
	anySeq    bool
	told      string // the last logged failure
	toldOf    string // the last logged failure of the fallback
}

// New checks cfg and returns a Watcher, which Run starts.
func New(cfg Config) (*Watcher, error) {
	if cfg.Open == nil {
		cfg.Open = openKmsg
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.OnKill == nil {
		errs = append(errs, errors.New("OOMConfig.OnKill is required"))
	}
	met, err := newMetrics(cfg.Metrics)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("oom: %w", err)
	}
	return &Watcher{cfg: cfg, met: met}, nil
}

// Run watches until ctx ends and returns nil when every goroutine has ended.
// It may be called once.
func (m *Watcher) Run(ctx context.Context) error {
	wait := retry.Backoff{First: firstRetry, Max: lastRetry}
	for ctx.Err() == nil {
		began := time.Now()
		err := m.read(ctx)
		if wait.Recovered(time.Since(began)) {
			m.told = ""
		}
		if ctx.Err() == nil {
			m.failed(err)
			m.without(ctx, wait.Next())
		}
	}
	return nil
}

// failed logs a failure. While the same failure repeats, it is logged only once.
func (m *Watcher) failed(err error) {
	if why := err.Error(); why != m.told {
		m.told = why
		m.cfg.Log.Warn("failed to read kernel log, trying again", zap.Error(err),
			zap.Bool("usingCounters", m.cfg.Fallback != nil && !m.opened))
	}
}

// read opens the log and follows it until it fails or ctx ends.
func (m *Watcher) read(ctx context.Context) error {
	log, err := m.cfg.Open(!m.opened)
	if err != nil {
		return err
	}
	m.opened = true
	return m.follow(ctx, log)
}

// follow reads a log until it fails or ctx ends.
func (m *Watcher) follow(ctx context.Context, log Log) error {
	stop := context.AfterFunc(ctx, func() { _ = log.Close() })
	defer func() {
		if stop() {
			_ = log.Close()
		}
	}()
	for {
		raw, err := log.Next()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrOverwritten):
			m.assembler = Assembler{} // it may lack the end of one report and have the beginning of the next
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		default:
			m.record(raw)
		}
	}
}

// record handles one record of the kernel's log.
func (m *Watcher) record(raw []byte) {
	r, err := parseRecord(raw)
	if err != nil {
		return
	}
	if m.anySeq && r.Seq <= m.lastSeq {
		return // read before the log was opened again
	}
	m.lastSeq, m.anySeq = r.Seq, true
	if !r.FromKernel() {
		return
	}
	if k, ok := m.assembler.Add(r.Message); ok {
		k.At = time.Now()
		m.tell(k)
	}
}

// without waits for the given time before the log is opened again. Meanwhile it reports
// the kills of Config.Fallback.
func (m *Watcher) without(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if f := m.cfg.Fallback; f != nil && !m.opened {
		if err := f.Watch(ctx, m.tell); err != nil && ctx.Err() == nil && err.Error() != m.toldOf {
			m.toldOf = err.Error()
			m.cfg.Log.Warn("failed to read OOM kill counters", zap.Error(err))
		}
	}
	<-ctx.Done()
}

func (m *Watcher) tell(k Kill) {
	scope := "limit"
	if k.Node {
		scope = "node"
	}
	m.met.kills.WithLabelValues(scope).Add(float64(k.Count))
	m.cfg.OnKill(k)
}
