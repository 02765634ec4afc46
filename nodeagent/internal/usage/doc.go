// Package usage exports the usage of a node and its pods as metrics, with the names that
// dashboards and autoscalers use: the names of the kubelet's /metrics/resource ([Resource]) and of
// cAdvisor ([Containers]).
//
//	reg := prometheus.NewRegistry()
//	reg.MustRegister(usage.Containers(usage.Config{Stats: stats}))
//	gatherers["/metrics/cadvisor"] = reg
//
// Both collect at each scrape and store nothing. Samples have the time of their
// measurement; unknown values are left out, never 0. If the stats cannot be read,
// an error metric says so and the rest is missing.
package usage
