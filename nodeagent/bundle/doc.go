// Package bundle makes a node run the pods of a bundle: package bundle, plugged into nodeagent. It
// is a separate package, so that only a program that uses it links it.
//
//	o := nodeagent.Options{Config: conf, Parts: nodeagent.Standard(), Services: nodeagent.StandardServices()}
//	bundle.Attach(&o, bundle.Config{Ref: "registry.example/fleet/shop:prod"})
//	n, err := nodeagent.New(ctx, o)
//
// Registries get the credentials that the node has for images. The agent's unix socket has the
// status, and takes bundles of files: [Status], [Apply], [ApplyRef] and [Rollback] are its clients.
//
// Tier: beta.
package bundle
