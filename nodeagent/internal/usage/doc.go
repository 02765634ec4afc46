// Package usage shows what a node and its pods use as metrics, under the names
// that dashboards and autoscalers know: those of the kubelet's
// /metrics/resource ([Resource]) and the ones of cAdvisor ([Containers]).
//
//	reg := prometheus.NewRegistry()
//	reg.MustRegister(usage.Containers(usage.Config{Stats: stats}))
//	gatherers["/metrics/cadvisor"] = reg
//
// Both are collectors that ask when they are scraped and keep nothing. Samples
// carry the time of their measurement; what is not known is left out, never
// shown as 0. If the stats cannot be had, an error metric says so and the
// rest is absent.
package usage
