// Package gc keeps the disks of a node from filling up: it removes dead containers and their
// sandboxes ([ContainerCollector]), images that nobody needs ([ImageCollector]), and it rotates the logs
// of containers ([LogRotator]). Each works alone, behind a small interface to the runtime.
//
// Tier: beta.
package gc
