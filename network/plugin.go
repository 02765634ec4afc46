package network

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
)

// Attachment is a pod's request for a network: plain values, recorded as they
// are and compared when the same ID comes again. [Network.Attach] copies what
// it keeps; the caller may change its own afterwards.
type Attachment struct {
	// ID names the attachment on this machine, such as the ID of a sandbox.
	// It matches [a-zA-Z0-9][a-zA-Z0-9_.-]* and has at most 128 bytes.
	ID string `json:"id"`
	// Namespace, Name and UID are the pod's.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Hostname is the pod's name for itself; plugins may ignore it.
	Hostname string `json:"hostname,omitempty"`
	// Ports are the ports of the node that lead into the pod. Those with
	// HostPort 0 are dropped.
	Ports       []Port            `json:"ports,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// CgroupParent is the pod's cgroup, as a path below the hierarchy's root.
	CgroupParent string `json:"cgroupParent,omitempty"`
	DNS          DNS    `json:"dns,omitzero"`
	// Ingress and Egress limit the pod's traffic, in bits a second; 0 is no
	// limit, and anything else is between 1,000 and 10^15.
	Ingress uint64 `json:"ingress,omitempty"`
	Egress  uint64 `json:"egress,omitempty"`
	// UserNS is the user namespace that shall own the pod's network namespace,
	// open for reading; nil is the agent's own. It is not recorded, is not
	// compared, and stays the caller's, who closes it after Attach returned.
	UserNS *os.File `json:"-"`
}

// Port is one port of the node that leads into a pod.
type Port struct {
	// Protocol is "tcp", "udp" or "sctp".
	Protocol string `json:"protocol"`
	// HostIP is the address of the node that the port is of; the zero value is
	// all of them.
	HostIP        netip.Addr `json:"hostIP,omitzero"`
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
}

// DNS is the resolver's configuration of a pod, for the plugins that want it.
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
	// but for [None].
	IPs []netip.Addr `json:"ips"`
	// Warnings are things that were asked for and that the network does not
	// serve, each a sentence for the pod's events.
	Warnings []string `json:"warnings,omitempty"`
	// Extra is the plugin's own result, in a form of its own.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Plugin gives namespaces a network and takes it back. [Network] calls it: one
// call at a time for one ID, calls for different IDs at once. All methods are
// given contexts with a deadline, and return soon after it. An [Error] anywhere
// in the tree of an error says what kind it is of.
//
// What a plugin needs for TearDown is in saved and nowhere else: a plugin may
// be configured anew, or be another process's, between the two.
type Plugin interface {
	// Name names the plugin in records and in logs, such as "bridge". An
	// attachment is taken back by a plugin of the name of the one that made it.
	Name() string
	// Durable reports whether something that SetUp makes outlives a reboot of
	// the machine, so that the record has to be synced to the disk before SetUp.
	Durable() bool
	// Plan chooses: it checks a, and returns what SetUp and TearDown are to be
	// given. Nothing outside the plugin's memory is changed by it, and a plan
	// that is never set up is torn down all the same. At most 256 KiB.
	Plan(ctx context.Context, a Attachment) (saved []byte, err error)
	// SetUp gives the namespace at the path netns what was planned. After an
	// error TearDown is called. guard is a file that whatever process SetUp
	// starts inherits and holds locked while it runs: it is how a later agent
	// knows that such a process outlived this one. It is locked already, for as
	// long as anybody has it open; each process that leads a group of its own
	// is named in it with [WriteGuard]. It is nil for a plugin that is not
	// Durable.
	SetUp(ctx context.Context, a Attachment, netns string, saved []byte, guard *os.File) (Result, error)
	// TearDown takes back whatever of the plan was set up: all, a part or
	// nothing. It is idempotent. netns is "" if the namespace does not exist
	// any more. An error has it called again later.
	TearDown(ctx context.Context, a Attachment, netns string, saved []byte, guard *os.File) error
	// Status returns nil if a pod could be attached now, and otherwise an
	// error that a person can act on. It is called often and does not wait.
	Status() error
	// Recovered is called once, after the records were read and before any other
	// call but Status, Name and Durable, and again only if it fails: kept are the
	// attachments that exist or have to be torn down by this plugin. What the
	// plugin remembers of others had records that were damaged or given up, and
	// may be taken back.
	Recovered(ctx context.Context, kept []Kept) error
	// Run watches what the plugin has to watch until ctx ends, or returns nil if
	// there is nothing to watch; after an error it is called again. changed is to
	// be called when Status may have changed.
	Run(ctx context.Context, changed func()) error
}

// Kept is an attachment of the past.
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

// Collector is a [Plugin] that can free what belongs to no attachment. It is
// called only if [Config.Exclusive] says that nobody else uses the network, once
// after Recovered, and no other call of the plugin is made before it returned.
type Collector interface {
	Collect(ctx context.Context, keep []Kept) error
}
