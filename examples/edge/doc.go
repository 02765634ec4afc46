// Command edge is a node agent in the few files of this folder. It shows how to
// embed package agent without a Kubernetes cluster. Its pods come from a web
// server, and some of them require a licence.
//
//	edge --orders https://plant.example/orders/line-7 --licences https://licences.example
//	     --root /var/lib/edge --images /usr/share/edge/images
//
// main.go assembles the agent: a source, and two parts (licences, and garbage
// collection). It leaves out the parts for eviction, devices, CPU placement and an API
// server. The program needs root, and runc or crun. By default the container runtime is in
// the same process (runtime.go), so that this single program is a whole node. To use
// another runtime of the machine, set --runtime, for example to
// unix:///run/containerd/containerd.sock. The commands of examples/agent query the agent:
//
//	agent --root-dir /var/lib/edge get pods
//	agent --root-dir /var/lib/edge why press
//
// # Orders
//
// source.go is a [podmgr.Source]. The server answers with the complete list and an
// ETag. If a request has this ETag in If-None-Match, the server may wait up to a minute
// for a new list (Prefer: wait, RFC 7240). If there is none, it answers 304.
//
//	[{"name": "press", "image": "registry.example/press:3", "args": ["--line", "7"], "licence": "vision"},
//	 {"name": "gauge", "image": "registry.example/gauge:1"}]
//
// Any web server that serves such a file can be used. If a request fails, or if an order in
// a list is invalid, the agent keeps the last valid list. It also stores this list on disk,
// so that a node that starts without a network connection runs the last orders.
//
// # Licences
//
// licence.go is a part. A pod whose order names a licence gets no sandbox before the
// server has granted the licence. Until then the pod waits; its events and "agent why"
// name the licence. When the pod and its files are removed, the part returns the
// licence.
//
//	PUT    /licences/UID {"product": "vision", "pod": "default/press"}
//	       200 {"granted": "UID"}, or a refusal and a line of text
//	DELETE /licences/UID
//	       204, also if the licence was not granted or has been returned before
//
// The agent repeats both requests until the server has answered; a repeated request has
// no further effect. Before each request the agent writes a record, so that no licence
// is lost, and none is requested twice, if the agent is killed at any time. A server
// that does not answer delays only the pods that require a licence.
//
// node_test.go tests the agent with a runtime in memory and failing servers;
// e2e_test.go tests pods on containerd.
package main
