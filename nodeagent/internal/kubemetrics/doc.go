// Package kubemetrics exports what becomes of the calls to an API server, under the
// names of client-go where it has one, so that dashboards keep working.
//
//	m, err := kubemetrics.New(registry)
//	...
//	client, err := kubeapi.New(kubeapi.Config{REST: cfg, Observer: m})
//	...
//	err = m.Add(metrics.Events(recorder.Counts), metrics.Statuses(sink.Counts))
//
// One Metrics serves all the clients of an agent. It is a package of its own so
// that who wants none of it does not pay for Prometheus: apiclient, events and
// podsync know nothing of it.
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
// The labels are bounded: codes and methods are HTTP's, hosts those of the
// configuration, resources the ones that a node agent has to do with. The age
// is monotonic: a jump of the clock does not show.
package kubemetrics
