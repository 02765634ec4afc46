package kubemetrics

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/kubeapi"
)

// durations are client-go's buckets, in seconds.
var durations = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}

// sizes are client-go's buckets, in bytes.
var sizes = []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}

// Metrics are the metrics of the clients of an API server. The methods may be
// called from any goroutine.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec

	sent, received, throttled *prometheus.HistogramVec
	retries                   *prometheus.CounterVec

	begun   time.Time
	contact atomic.Int64 // last contact, since begun
}

var (
	_ kubeapi.Observer = (*Metrics)(nil)
	_ kubeapi.Traffic  = (*Metrics)(nil)
)

// New creates Metrics and registers them with reg. If reg is nil, they are not exported.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		begun: time.Now(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Requests to the API server, by the answer's code, or <error> if there was none.",
		}, []string{"code", "method", "host"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "Time until the API server began its answer, without watches.", Buckets: durations,
		}, []string{"verb", "host"}),
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"verb", "host"})
	}
	m.sent = histogram("rest_client_request_size_bytes", "Bodies of requests to the API server.", sizes)
	m.received = histogram("rest_client_response_size_bytes", "Answers of the API server, as they were read, watches left out.", sizes)
	m.throttled = histogram("rest_client_rate_limiter_duration_seconds", "For how long calls waited for the budget of calls.", durations)
	m.retries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_request_retries_total", Help: "Repeated requests, by the previous answer, or <error> if there was none.",
	}, []string{"code", "verb", "host"})
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodewright_apiserver_last_contact_age_seconds", Help: "Time since the last answer of the API server, or since the agent's start.",
	}, func() float64 { return m.LastContact().Seconds() })
	if err := promshare.Register(reg, m.requests, m.duration, m.sent, m.received, m.throttled, m.retries, age); err != nil {
		return nil, fmt.Errorf("register metrics of API requests: %w", err)
	}
	return m, nil
}

// LastContact returns the time since the API server's last answer, or since New if there was
// none. An error of a proxy or of a failing server (500 and more) does not count as an answer.
func (m *Metrics) LastContact() time.Duration {
	return time.Since(m.begun) - time.Duration(m.contact.Load())
}

// Exchanged implements [kubeapi.Observer].
func (m *Metrics) Exchanged(method, host string, code int, took time.Duration) {
	m.requests.WithLabelValues(codeLabel(code), method, host).Inc()
	if took > 0 {
		m.duration.WithLabelValues(method, host).Observe(took.Seconds())
	}
	if code == 0 || code >= 500 {
		return
	}
	now := int64(time.Since(m.begun))
	for last := m.contact.Load(); last < now && !m.contact.CompareAndSwap(last, now); {
		last = m.contact.Load()
	}
}

func codeLabel(code int) string {
	if code == 0 {
		return "<error>"
	}
	return strconv.Itoa(code)
}

// Sent implements [kubeapi.Traffic].
func (m *Metrics) Sent(verb, host string, bytes int64) {
	m.sent.WithLabelValues(verb, host).Observe(float64(bytes))
}

// Received implements [kubeapi.Traffic].
func (m *Metrics) Received(verb, host string, bytes int64) {
	m.received.WithLabelValues(verb, host).Observe(float64(bytes))
}

// Throttled implements [kubeapi.Traffic].
func (m *Metrics) Throttled(verb, host string, waited time.Duration) {
	m.throttled.WithLabelValues(verb, host).Observe(waited.Seconds())
}

// Retried implements [kubeapi.Traffic].
func (m *Metrics) Retried(verb, host string, code int) {
	m.retries.WithLabelValues(codeLabel(code), verb, host).Inc()
}
