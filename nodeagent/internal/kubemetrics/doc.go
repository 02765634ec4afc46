// Package kubemetrics exports metrics of the calls to an API server, with
// client-go's names where it has them, so that dashboards work.
//
//	m, err := kubemetrics.New(registry)
//	...
//	client, err := kubeapi.New(kubeapi.Config{REST: cfg, Observer: m})
//
// One Metrics is for all clients of an agent. It is a separate package so that
// others do not link Prometheus.
//
//	rest_client_requests_total{code,method,host}         code <error>: no answer
//	rest_client_request_duration_seconds{verb,host}      to the answer's beginning; no watches
//	nodewright_apiserver_last_contact_age_seconds        since any answer below 500
//
// # Faults
//
// The labels are bounded: codes and methods are HTTP's, and hosts come from the configuration.
// The age is monotonic: it ignores changes of the clock.
package kubemetrics
