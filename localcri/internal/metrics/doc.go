// Package metrics exports what becomes of a localcri.Runtime.
//
//	err := metrics.Register(registry, runtime.Counts)
//
// It is a package of its own so that who wants none of it does not pay for
// Prometheus.
//
//	nodewright_localcri_sandboxes
//	nodewright_localcri_containers
//	nodewright_localcri_monitors
//	nodewright_localcri_monitor_successors_total  monitors that were replaced
//	nodewright_localcri_records_set_aside_total   damaged
//	nodewright_localcri_orphans_undone_total      leftovers without a record
//	nodewright_localcri_log_lost_bytes_total      that no disk took
package metrics
