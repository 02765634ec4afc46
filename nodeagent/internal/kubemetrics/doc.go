// Package kubemetrics exports metrics of the calls to an API server, with
// client-go's names where it has them, so that dashboards work.
//
//	m, err := kubemetrics.New(registry)
//	...
//	client, err := kubeapi.New(kubeapi.Config{REST: cfg, Observer: m})
//	...
//	err = m.Add(metrics.Events(recorder.Counts), metrics.Statuses(sink.Counts))
//
// One Metrics is for all clients of an agent. It is a separate package so that
// others do not link Prometheus.
//
//	rest_client_requests_total{code,method,host}         code <error>: no answer
//	rest_client_request_duration_seconds{verb,host}      to the answer's beginning; no watches
//	nodewright_apiserver_last_contact_age_seconds        since any answer below 500
//	nodewright_apiserver_watches{resource}               open now
//	nodewright_apiserver_watch_starts_total{resource,result}
//	nodewright_apiserver_events_total{fate}
//	nodewright_apiserver_event_calls_total{result}
//	nodewright_apiserver_status_calls_total{result}
//
// # Faults
//
// The labels are bounded: codes and methods are HTTP's, hosts come from the configuration, and
// resources are the ones that a node agent uses. The age is monotonic: it ignores changes of the
// clock.
package kubemetrics
