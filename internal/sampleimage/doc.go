// Package sampleimage builds small container images without a network, a daemon or a
// Dockerfile: it packs a static Go program into an OCI image archive for "ctr images
// import".
//
// [Write] writes an archive. The same [Image] gives the same bytes on every machine, so
// that an image's digest changes only with its content. [Build] compiles the programs in
// examples/images and writes an archive for each.
//
//	archives, err := sampleimage.Build(ctx, repository, "build/images")
//	// ctr -n k8s.io images import --local build/images/web.tar
//
// Build may run in several processes at once: a lock in the output directory lets only
// one of them build at a time. A program that has not changed is not linked again.
package sampleimage
