// Package devices is the part of a node agent that gives pods the devices of
// device plugins.
//
//	manager, err := devicemgr.New(devicemgr.Config{SocketDir: dir, Store: store})
//	...
//	p, err := devices.New(devices.Config{Manager: manager, Log: log})
//	...
//	agent.New(agent.Config{Parts: []part.Part{p, placement}})
//
// It stands before the part that places CPUs and memory, whose decision its
// reservations take part in ([part.Aligned]). Without such a part they decide by
// themselves.
//
// # Hooks
//
// Restore hands the manager the containers that run: they keep what they have.
// Run runs the manager from then on, has pods synced whose devices changed their
// health, and pods admitted or started that waited for a plugin. Reserve looks at
// what a pod asks for; its Commit has the plugins allocate, when everything else
// has been reserved. Compile adds to containers what the plugins said, and
// BeforeCreate has plugins make devices ready, for which the start of a
// container waits a second at most: it is tried again when they are. Report adds
// the health of devices (KEP-4680). Stopped gives devices back, and Sweep those of
// pods that are gone.
//
// # Ownership
//
// The manager is the part's from Join on: nobody else calls Restore, Run, Release
// or Retain. Run owns every goroutine, and returns when no call of a plugin or of
// the manager's store is under way any more.
//
// # Faults
//
// Hooks on the loop read memory only. A plugin that hangs holds up the pods that
// ask for its resource, and a disk that hangs those that are being given devices.
// Until Restore is done, pods that ask for extended resources wait, with the
// reason DevicesNotReady, and nothing of pods that run is touched. Pods whose
// plugin is away wait with the same reason, until the manager gives the plugin
// up.
//
// Tier: beta.
package devices
