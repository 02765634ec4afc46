// Package hostdevices offers devices of the machine as extended resources, without a device
// plugin: a few lines of configuration say which devices are which resource.
//
//	devices:
//	- resource: example.com/serial
//	  paths: [/dev/ttyUSB*]
//	- resource: example.com/camera
//	  usb: 046d:0825
//	- resource: nvidia.com/gpu
//	  cdi: nvidia.com/gpu
//
// In an agent it is a part:
//
//	settings, err := hostdevices.Load("/etc/nodewright/devices.yaml")
//	...
//	parts := append(nodeagent.Standard(), func(b *nodeagent.Builder) (part.Part, error) {
//		return hostdevices.New(hostdevices.Config{Settings: settings, Offer: b.Facts.OfferDevices, Log: b.Log})
//	})
//
// With a devicemgr.Manager alone, Offer is its method Offer, and [Provider.Run] runs beside that
// of the manager.
//
// # Which device is which resource
//
// Rules are tried in their order, and a device belongs to the first rule that selects it. A device
// is offered once, even if several paths, links or CDI names stand for it: if a path or a name has
// all device nodes of another one, only the first of the two is offered. CDI names with the fewest
// device nodes come first, and of these the shortest. For nvidia.com/gpu, the agent offers the name
// 0, and not GPU-UUID or all.
//
// # What a container gets
//
// It gets the nodes of its devices, at the same paths as on the host, to read and to write; or the
// edits of the CDI specification, if the rule is about CDI: the runtime of the containers applies
// them. A USB device has its own node and those of all its functions: a camera is
// /dev/bus/usb/001/003, /dev/video0 and /dev/media0.
//
// # Presence
//
// A device whose nodes exist is healthy. A device that has been there and is missing stays in the
// list as unhealthy until [Provider.Run] ends. Directories are watched with inotify: while no
// device comes or goes, nothing is read. A list waits until there was no change for a second,
// since the nodes of one device do not come at the same time. Before a device is allocated, and
// before each start of a container with devices, the machine is read again, so that no container
// gets the node of another device.
//
// # NUMA nodes
//
// A device is near the NUMA nodes of its device nodes in /sys. A node that the kernel does not
// list there, such as /dev/nvidia0, has none; those that a specification names beside it may, such
// as /dev/dri/card1.
//
// # Trust
//
// Rules name paths below /dev alone. A device is ignored if its directory can be written by anybody
// but root or the user of this process. A link that leads out of /dev is ignored too. CDI
// specifications have the same rule for owners, and limits of size and number. Calls into file
// systems have deadlines.
//
// Tier: beta.
package hostdevices
