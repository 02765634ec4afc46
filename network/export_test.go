package network

import "github.com/nodewright/nodewright/internal/durable"

// SetDisk has the records be on another disk.
func (n *Network) SetDisk(d durable.Disk) { n.store.quick.Disk, n.store.synced.Disk = d, d }

// SetPoint has f be called between the steps of operations.
func SetPoint(f func(string)) { atPoint = f }

// SpacePath is where the namespace of an ID is.
func (n *Network) SpacePath(id string) string { return n.cfg.spacePath(id) }
