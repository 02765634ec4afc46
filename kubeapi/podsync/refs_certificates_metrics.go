package podsync

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var states = prometheus.NewDesc("kubelet_podcertificate_states",
	"Sources of projected volumes with certificates of pods, by signer and state: not_yet_issued, fresh, overdue_for_refresh, expired, denied or failed.",
	[]string{"signer_name", "state"}, nil)

// collector counts the sources when it is collected.
type collector struct{ *CertificateIssuer }

func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- states }

func (c collector) Collect(ch chan<- prometheus.Metric) {
	counts, now := map[[2]string]int{}, time.Now()
	c.set(func() {
		for _, r := range c.records {
			counts[[2]string{r.signer, r.stateAt(now)}]++
		}
	})
	for k, n := range counts {
		ch <- prometheus.MustNewConstMetric(states, prometheus.GaugeValue, float64(n), strings.ToValidUTF8(k[0], "?"), k[1])
	}
}

// stateAt returns the state of the source, as the kubelet's metric kubelet_podcertificate_states
// names it.
func (r *certificateRecord) stateAt(now time.Time) string {
	switch {
	case r.state != "":
		return r.state
	case r.chain == nil:
		return "not_yet_issued"
	case now.After(r.notAfter):
		return "expired"
	case now.After(r.refreshAt.Add(overdueAfter)):
		return "overdue_for_refresh"
	}
	return "fresh"
}
