package network

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
)

// Attachment is a pod's request for a network. It is recorded, and compared if the
// same ID is attached again. [Network.Attach] copies it; the caller may change it
// afterwards.
type Attachment struct {
	// ID names the attachment on this machine, such as the ID of a sandbox.
	// It matches [a-zA-Z0-9][a-zA-Z0-9_.-]* and has at most 128 bytes.
	ID string `json:"id"`
	// Namespace, Name and UID are those of the pod.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Hostname is the pod's host name; plugins may ignore it.
	Hostname string `json:"hostname,omitempty"`
	// Ports are ports of the node that are forwarded to the pod. Those with
	// HostPort 0 are dropped.
	Ports       []Port            `json:"ports,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// CgroupParent is the pod's cgroup, as a path below the hierarchy's root.
	CgroupParent string `json:"cgroupParent,omitempty"`
	DNS          DNS    `json:"dns,omitzero"`
	// Ingress and Egress limit the pod's traffic, in bits per second. 0 means no limit; other
	// values are between 1,000 and 10^15.
	Ingress uint64 `json:"ingress,omitempty"`
	Egress  uint64 `json:"egress,omitempty"`
	// UserNS is the user namespace that owns the pod's network namespace, open for reading. If it
	// is nil, the agent's own user namespace is used. It is not recorded and not compared. The
	// caller closes it after Attach has returned.
	UserNS *os.File `json:"-"`
}

// Port is one port of the node that is forwarded to a pod.
type Port struct {
	// Protocol is "tcp", "udp" or "sctp".
	Protocol string `json:"protocol"`
	// HostIP is the address of the node on which the port answers. The zero value means all
	// addresses.
	HostIP        netip.Addr `json:"hostIP,omitzero"`
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
}

// DNS is the resolver configuration of a pod, for plugins that use it.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// Result is a pod's network.
type Result struct {
	// Netns is the path of the network namespace. It is valid until Detach.
	Netns string `json:"netns"`
	// IPs are the pod's addresses, the primary one first. There is at least one,
	// except with [None].
	IPs []netip.Addr `json:"ips"`
	// Warnings are requests that the network does not support, each a sentence for
	// the pod's events.
	Warnings []string `json:"warnings,omitempty"`
	// Extra is the plugin's own result, in its own format.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Plugin sets up and tears down the network of namespaces. [Network] makes one call
// at a time for an ID, and concurrent calls for different IDs. All contexts have a
// deadline, soon after which methods return. An [Error] anywhere in the tree of an
// error gives its kind.
//
// Everything that TearDown needs must be in saved: when TearDown is called, the plugin
// may have another configuration, or run in another process.
type Plugin interface {
	// Name returns the plugin's name in records and logs, such as "bridge". An
	// attachment is torn down by the plugin whose name is in its record.
	Name() string
	// Durable reports whether anything that SetUp creates survives a reboot, so
	// that the record has to be synced to the disk before SetUp.
	Durable() bool
	// Plan checks a, and returns the plan for SetUp and TearDown, at most 256 KiB. It changes
	// only the plugin's memory. TearDown is called for each plan, even if SetUp was not called.
	Plan(ctx context.Context, a Attachment) (saved []byte, err error)
	// SetUp sets up the planned network in the namespace at the path netns. After an
	// error TearDown is called. guard is a locked file that each process started by
	// SetUp has to inherit. The file stays locked while any process has it open, so a
	// later agent notices a process that outlived this agent. If a process leads a
	// process group of its own, SetUp names it in the guard with [WriteGuard]. guard is
	// nil for a plugin that is not Durable.
	SetUp(ctx context.Context, a Attachment, netns string, saved []byte, guard *os.File) (Result, error)
	// TearDown removes all parts of the plan that exist. It is idempotent. netns is
	// "" if the namespace no longer exists. After an error it is called again
	// later.
	TearDown(ctx context.Context, a Attachment, netns string, saved []byte, guard *os.File) error
	// Status returns nil if a pod could be attached now, and otherwise an error
	// that a person can act on. It is called often and must not block.
	Status() error
	// Recovered is called once, after the records were read, and before all other
	// methods except Status, Name and Durable. After an error it is called again. kept
	// are the attachments of this plugin that exist or have to be torn down. If the
	// plugin knows an attachment that is not in kept, its record was damaged or
	// dropped, and the plugin may tear it down.
	Recovered(ctx context.Context, kept []Kept) error
	// Run watches for changes until ctx ends. If there is nothing to watch, it returns nil at
	// once. After an error it is called again. It calls changed when the result of Status may
	// have changed.
	Run(ctx context.Context, changed func()) error
}

// Kept is an existing attachment of an earlier process.
type Kept struct {
	Attachment Attachment
	Netns      string
	Saved      []byte
	// Result is nil for an attachment that has to be torn down.
	Result *Result
}

// Checker is a [Plugin] that can check an attachment.
type Checker interface {
	Check(ctx context.Context, k Kept, guard *os.File) error
}

// Collector is a [Plugin] that can free resources that belong to no attachment. Collect
// is called only with [Config.Exclusive], once after Recovered. No other method of the
// plugin is called until it has returned.
type Collector interface {
	Collect(ctx context.Context, keep []Kept) error
}
