// Package local is a node agent's API for people at the same machine: HTTP over a unix
// socket, in Kubernetes objects.
//
// [Handler] serves the API of an [Agent], and [Client] is its client. The paths are
//
//	GET  /v1/pods                                  a v1.PodList with full status
//	GET  /v1/pods/{namespace}/{name}               a v1.Pod
//	GET  /v1/pods/{namespace}/{name}/events        a v1.EventList, oldest first
//	GET  /v1/pods/{namespace}/{name}/why           a [Why]
//	GET  /v1/pods/{namespace}/{name}/log           a container's log, see [LogOptions]
//	POST /v1/pods/{namespace}/{name}/exec          an [ExecRequest], answered with an [ExecReply]
//	GET  /v1/why                                   a list of [Why], of all pods
//	GET  /v1/events?namespace=N&name=N             a v1.EventList of all objects, including deleted ones
//	GET  /v1/history                               a [Usage], of the last hour
//	GET  /v1/problems                              a list of [Problem], the manifests that were refused
//	GET  /healthz                                  "ok", or 503 and the reasons
//	GET  /metrics                                  Prometheus text, if the agent has any
//
// An error is a status code of 400 or above and one line of text.
//
// There is no other access control than the socket's mode: a program that can open the
// socket may run commands in any container. [Listen] makes it accessible to its owner
// only.
//
// # A page about the node
//
// [Page] is a web page about a node. It shows the states of the node and its pods, with the
// reasons; the usage of the last hour; manifests with mistakes; events; the pods that would be
// evicted first; and why images are kept. Each pod has a page of its own, with its spec, its usage
// and limits, its history with exit codes, and its logs.
//
//	page, err := local.NewPage(local.PageConfig{Agent: local.NewClient(socket), Log: log})
//	srv := &http.Server{Handler: local.WithToken(page, token)}
//
// The page is read-only: no request changes anything. It loads nothing from other hosts. It is
// complete without JavaScript; with JavaScript it updates itself, filters while the user types,
// and follows logs. If the agent does not answer, the page shows the last answer and its time.
//
// # A page about the node: access
//
// The page shows the logs and the environment of containers, and its handler does not
// authenticate clients. [WithToken] adds this: it admits clients that send a secret
// token, and refuses requests with the name of another host, so that other pages in the
// same browser have no access. A server that authenticates its clients itself can use
// the handler without it. All links are relative, so the handler can be served below any
// path, with http.StripPrefix.
//
// # A page about the node: bounds
//
// The handler asks the agent for each page. If an answer does not come within a few seconds, the
// page says so and shows the rest. A page shows at most [MaxPagePods] pods, and the last part of a
// log. Only the last set of answers is kept in memory. All values from pods are shown as text, so
// they cannot contain HTML or scripts.
//
// # Usage of the last hour
//
// A [History] measures the node and its running pods every 30 seconds, and keeps the values of one
// hour, about 2 KiB for each pod. It belongs to the agent, so that every page shows the same
// values, even just after the page was opened.
//
// # Events
//
// An [EventLog] keeps the newest events of every pod and of the node, and passes each event on
// to a recorder. The events of a pod that is gone are kept for an hour. [EventLog.Keep] stores
// events over a restart.
//
// Tier: beta.
package local
