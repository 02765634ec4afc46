// Package gc keeps the disks of a node from filling up: it removes dead containers and their
// sandboxes ([ContainerCollector]), and images that nobody needs ([ImageCollector]). Each works
// alone, behind a small interface to the runtime. Package logrotate limits the logs of containers.
//
// Tier: beta.
package gc
