// Command edge is a node agent of its own, in the few files of this folder: it
// shows what it takes to embed package agent where there is no Kubernetes
// cluster. Its pods are ordered over HTTP, and some of them want a licence.
//
//	edge --orders https://plant.example/orders/line-7 --licences https://licences.example
//	     --root /var/lib/edge --images /usr/share/edge/images
//
// main.go puts it together: the agent, a source, two parts (licences, and the
// removal of what pods leave). Eviction, devices, CPU placement and an API server
// are not in the list of parts, so there are none. It needs root, and runc or crun:
// runtime.go has the container runtime in the same process, so that this one program
// is a whole node; --runtime unix:///run/containerd/containerd.sock is for machines
// that have another one. A person at the machine asks it with the other example:
//
//	agent --root-dir /var/lib/edge get pods
//	agent --root-dir /var/lib/edge why press
//
// # Orders
//
// source.go is a [podmgr.Source]. The server answers with the whole list, and
// with an ETag; a request that has this ETag in If-None-Match may wait for up to a
// minute for another one (Prefer: wait, RFC 7240) before it is answered 304.
//
//	[{"name": "press", "image": "registry.example/press:3", "args": ["--line", "7"], "licence": "vision"},
//	 {"name": "gauge", "image": "registry.example/gauge:1"}]
//
// Any web server with that file will do. What cannot be fetched or read changes
// nothing, and half a list is no list. The last good one is kept on disk: a node
// that starts without an uplink runs what it was ordered to last.
//
// # Licences
//
// licence.go is a part. A pod whose order names a licence gets no sandbox before
// the server has granted it; until then it waits, and its events and "agent why"
// say for what. When nothing of the pod is left, the licence goes back.
//
//	PUT    /licences/UID {"product": "vision", "pod": "default/press"}
//	       200 {"granted": "UID"}, or a refusal and a line of text
//	DELETE /licences/UID
//	       204, also if it was not granted or was returned before
//
// Both are safe to repeat, and are repeated until the server has answered. The
// agent writes down that it asks before it asks: whatever is killed in between,
// no licence is lost and none is asked for that is held. A server that hangs
// holds up the pods that want a licence, and no other.
//
// node_test.go has the agent over a runtime in memory and servers that are not
// well, e2e_test.go pods on containerd.
package main
