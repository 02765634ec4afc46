// Package podspec compiles a Kubernetes Pod into the requests of the CRI: a sandbox
// configuration and one configuration for each container.
//
// It is a pure compiler. All that a pod's meaning depends on comes in with
// [Input]: ConfigMaps and Secrets, services, facts of the node, addresses,
// where volumes are mounted. Of files that variables come from it asks for the
// content, through Input.ReadFile. What comes out are the configurations, and
// the files and directories that have to be there before they are used.
//
//	in := podspec.Input{Pod: pod, Node: node, PodDir: "/var/lib/agent/pods/" + uid}
//	sandbox, err := podspec.Sandbox(in, 0)
//	...
//	plan, err := podspec.Container(in, "web", podspec.ContainerOptions{Image: facts})
//
// [Compile] does all of it at once, for dry runs.
//
// Mistakes come back as [Problems]: each names the field, what is wrong with
// it, and the reason that Kubernetes shows for it. The same input gives the
// same output, in the same order.
//
// Tier: stable.
package podspec
