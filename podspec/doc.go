// Package podspec compiles a Kubernetes Pod into the requests of the CRI: a sandbox
// configuration and one configuration for each container.
//
// It is a pure compiler. [Input] has everything that the result depends on: the pod, ConfigMaps
// and Secrets, services, facts of the node, addresses, paths of volumes. Only files with
// variables are read through a function, Input.ReadFile. The result has the configurations, and
// the files and directories that must exist before the configurations are used.
//
//	in := podspec.Input{Pod: pod, Node: node, PodDir: "/var/lib/agent/pods/" + uid}
//	sandbox, err := podspec.Sandbox(in, 0)
//	...
//	plan, err := podspec.Container(in, "web", podspec.ContainerOptions{Image: facts})
//
// [Compile] does all of it at once, for dry runs.
//
// Mistakes are returned as [Problems]: each has the field, a text and the reason that Kubernetes
// shows for it. The same input gives the same output, in the same order.
//
// Tier: stable.
package podspec
