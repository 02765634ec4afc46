// Package otlp sends the facts and decisions of a node agent to an OpenTelemetry collector: the
// facts of package record as logs, and spans that are derived from them.
//
//	x, err := otlp.New(otlp.Config{Endpoint: "collector:4317", Node: "edge-7"})
//	if err != nil {
//		return err
//	}
//	parts = append(parts, x)
//
// An [Exporter] has the methods of a part with goroutines (package agent/part), so that it can be
// in the list of parts of an agent of this module, with a record.Recorder beside it or without
// one. Programs with another agent call [Exporter.Record] and [Exporter.Run].
//
// # Logs
//
// Each event and each changed state is a log record. Its event name is the kind of the fact, such as
// "instance", and its body is the fact in JSON, with the fields of package record and no others.
//
// # Traces
//
// A trace has the life of a pod on one day (UTC), so that no trace grows without end. Its ID is
// derived from the pod's UID, its life and the day, so a restart of the agent continues the trace.
// Each log of the pod has the ID. Spans have the kubelet's names where the kubelet has the same
// spans:
//
//	syncPod, syncTerminatingPod, syncTerminatedPod   calls of the pod worker that did something
//	  runtime.v1.RuntimeService/RunPodSandbox        the sandbox, with its network
//	  runtime.v1.ImageService/PullImage              a pull of a second or more; a failed one, without how long it took
//	  start container                                from the decision until the container runs
//	run container                                    from its start to its end, with the exit code
//	startup probe, readiness probe, liveness probe   from the first failed check until the probe counted as failed
//
// # A collector that does not answer
//
// Record never waits. Entries wait in a queue of at most 4,096 entries and 4 MiB. Entries that do
// not fit, and data that the collector has not accepted within ten seconds, are dropped and
// counted in nodewright_otlp_dropped_total. A state that did not fit is sent when the agent passes
// it again.
//
// The official exporters for Go send the batches, over gRPC. They also read the environment
// variables of OpenTelemetry for headers and compression.
//
// Tier: beta.
package otlp
