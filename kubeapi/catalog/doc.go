// Package catalog knows what is the same for all pods of a cluster: its
// services, which the environment of containers names, and its runtime
// classes.
//
//	cat, err := catalog.New(catalog.Config{Client: client})
//	...
//	go cat.Run(ctx)
//	services := cat.Services()
//	handler, err := cat.Handler(ctx, "gvisor")
//
// Both are followed by one watch each, and kept without what nobody here asks
// for: of a service its names, its address and its ports.
//
// # Faults
//
// While the server cannot be reached, all stays as it was last. At the start
// callers wait for its first answer, and no longer than two seconds after Run
// began: a pod that is started without its services' variables never gets them.
// With a Memory the last services and classes are known before.
package catalog
