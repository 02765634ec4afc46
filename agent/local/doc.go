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
// [Page] is a page about a node: its pods and what each of them waits for, logs that
// follow, what was used in the last hour, events, the pods that would be evicted next,
// and the reasons why images are kept.
//
//	page, err := local.NewPage(local.PageConfig{Agent: local.NewClient(socket), Log: log})
//	go page.Run(ctx)
//	srv := &http.Server{Handler: local.WithToken(page, token)}
//
// It only looks: no request changes anything. The page is one file without any request
// to elsewhere, and is whole without JavaScript, which only renews it.
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
// The agent is asked for each page, and for figures every ten seconds while Run works;
// an answer that does not come within a few seconds is shown as such, and the rest of the
// page with it. A page shows [MaxPagePods] pods, and the last part of a log. All that comes
// from pods is text to the page, whatever it contains.
//
// # Events
//
// An [EventLog] remembers the newest events of every pod and of the node, and hands each on
// to a recorder. Those of a pod that is gone are remembered for an hour. [EventLog.Keep] keeps
// events over a restart.
//
// Tier: beta.
package local
