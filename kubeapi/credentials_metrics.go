package kubeapi

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// certificateMetrics has the kubelet's metrics of certificates.
type certificateMetrics struct {
	age    prometheus.Histogram // nil for the client's
	errors prometheus.Counter
}

func newCertificateMetrics(reg prometheus.Registerer, p CertificatePurpose, ttl func() *time.Duration) (*certificateMetrics, error) {
	name, failures := "client", "kubelet_certificate_manager_client_expiration_renew_errors"
	m := &certificateMetrics{}
	if p == ServingCertificate {
		name, failures = "server", "kubelet_server_expiration_renew_errors"
		m.age = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_certificate_manager_server_rotation_seconds", Help: "Age of a serving certificate when it was replaced.",
			// From a minute to four years, as the kubelet has it.
			Buckets: []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
		})
	}
	m.errors = prometheus.NewCounter(prometheus.CounterOpts{Name: failures, Help: "Failed requests for a certificate."})
	left := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_" + name + "_ttl_seconds",
		Help: "Remaining lifetime of the certificate; +Inf if there is none, negative if it has expired.",
	}, func() float64 {
		if d := ttl(); d != nil {
			return d.Seconds()
		}
		return math.Inf(1)
	})
	all := []prometheus.Collector{left, m.errors}
	if m.age != nil {
		all = append(all, m.age)
	}
	return m, promshare.Register(reg, all...)
}

func (m *certificateMetrics) failed() { m.errors.Inc() }

func (m *certificateMetrics) rotated(age time.Duration) {
	if m.age != nil {
		m.age.Observe(age.Seconds())
	}
}
