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
//	GET  /v1/why                                   a list of [Why], of all pods
//	GET  /v1/events?namespace=N&name=N             a v1.EventList of all objects, those that are gone too
//	GET  /v1/history                               a [Usage], of the last hour
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
// # A page about the node
//
// [Page] is a page about a node: how it and its pods fare, and why; what was used in the last hour;
// manifests with mistakes, events, the pods that would be evicted first, and the reasons why images
// are kept. Each pod has a page of its own: what it is made of, what it uses of what it may, its life
// with exit codes, and its logs.
//
//	page, err := local.NewPage(local.PageConfig{Agent: local.NewClient(socket), Log: log})
//	srv := &http.Server{Handler: local.WithToken(page, token)}
//
// It only looks: no request changes anything. It requests nothing from elsewhere, and is whole without
// JavaScript, which renews it, filters while one types, and follows logs. When the agent does not answer,
// it shows what the agent last said, and since when.
//
// # A page about the node: access
//
// Whoever may ask the handler sees logs and the environment of pods' containers. It asks
// nobody who they are: [WithToken] lets in who knows a secret, and refuses requests that
// name another host than the one asked for, so that no other page of a browser gets in.
// Behind a server that authenticates its clients the handler may stand alone. All links
// are relative, so that it may stand below any path, with http.StripPrefix.
//
// # A page about the node: bounds
//
// The agent is asked for each page; an answer that does not come within a few seconds is shown as such,
// and the rest of the page with it. A page shows [MaxPagePods] pods, and the last part of a log. The last
// answers are kept, once. All that comes from pods is text to the page, whatever it contains.
//
// # Usage of the last hour
//
// A [History] measures the node every 30 seconds, and remembers an hour of it and of each pod that runs:
// some 2 KiB a pod. It is the agent's, so that every page has the same, from its first moment on.
//
// # Events
//
// An [EventLog] remembers the newest events of every pod and of the node, and hands each on
// to a recorder. Those of a pod that is gone are remembered for an hour. [EventLog.Keep] keeps
// events over a restart.
//
// Tier: beta.
package local
