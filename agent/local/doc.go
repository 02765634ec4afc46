// Package local is a node agent's API for people at the same machine: HTTP over a unix
// socket, in Kubernetes objects.
//
// [Handler] serves what an [Agent] reports; [Client] asks. The paths are
//
//	GET  /v1/pods                                  a v1.PodList with full status
//	GET  /v1/pods/{namespace}/{name}               a v1.Pod
//	GET  /v1/pods/{namespace}/{name}/events        a v1.EventList, oldest first
//	GET  /v1/pods/{namespace}/{name}/why           a [Why]
//	GET  /v1/pods/{namespace}/{name}/log           a container's log, see [LogOptions]
//	POST /v1/pods/{namespace}/{name}/exec          an [ExecRequest], answered with an [ExecReply]
//	GET  /v1/problems                              a list of [Problem], the manifests that were refused
//	GET  /healthz                                  "ok", or 503 and the reasons
//	GET  /metrics                                  Prometheus text, if the agent has any
//
// An error is a status code of 400 or above and one line of text.
//
// The socket is the whole access control: whoever may open it may run
// commands in any container. [Listen] makes it readable and writable by its
// owner alone.
//
// Tier: beta.
package local
