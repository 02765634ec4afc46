// Package ocispec makes the OCI runtime configuration of a container (config.json, Open
// Container Initiative Runtime Specification 1.3) from the CRI's request, the image's
// configuration and the machine's abilities.
//
// It is pure: all facts come with an [Input], nothing is read, and the same
// input gives the same configuration. A request that cannot be served is
// refused with a gRPC status whose text names the field, its value and what is
// allowed: InvalidArgument for what no machine could do, FailedPrecondition for
// what this one cannot.
//
// Tier: beta.
package ocispec
