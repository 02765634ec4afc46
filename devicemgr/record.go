package devicemgr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/numa"
)

// The format of records. Stored records are checked like untrusted input, since a wrong one could
// assign a device to two pods.

// Keys in the store, which are file names in a checkpoint.Store.
const (
	podPrefix = "pod."
	namesKey  = "resources"
)

// recordVersion is the version of stored values. A value with another version counts as damaged.
const recordVersion = 1

// record has the devices of a pod. It is stored under the pod's UID. A record in Manager.pods is
// never modified, so readers need the lock only for the map.
type record struct {
	Version int       `json:"version"`
	UID     types.UID `json:"uid"`
	// Namespace and Name are for people. A pod that was taken over from a kubelet has neither.
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Held      []Holding `json:"held,omitempty"`
	Lost      bool      `json:"lost,omitempty"` // the pod has further devices that were in a damaged record
	// live reports that a container of the pod may be running. It is not stored: Restore sets it
	// from what the runtime reports.
	live bool
}

// Holding has the devices of one resource that a container has. It is shared and read-only.
type Holding struct {
	Container string `json:"container"`
	Resource  string `json:"resource"`
	// Devices are sorted by ID. Their nodes are those at the time of the allocation.
	Devices []HeldDevice `json:"devices"`
	// Attachment is the plugin's answer: the additions to the container.
	Attachment Attachment `json:"attachment"`
	// PreStart reports that the plugin has to be called before each start.
	PreStart bool `json:"preStart,omitempty"`
}

// HeldDevice is an allocated device of a container.
type HeldDevice struct {
	ID string `json:"id"`
	// Nodes are the NUMA nodes near the device at the time of the allocation. The set is empty if
	// there were none.
	Nodes numa.NodeSet `json:"nodes,omitempty"`
}

// ids returns the IDs of the devices, in ascending order. The caller owns the list.
func (h Holding) ids() []string {
	ids := make([]string, len(h.Devices))
	for i, d := range h.Devices {
		ids[i] = d.ID
	}
	return ids
}

// holding returns the devices of a resource that a container has. r is nil for a pod without
// devices.
func (r *record) holding(container, resource string) (Holding, bool) {
	if r != nil {
		for _, h := range r.Held {
			if h.Container == container && h.Resource == resource {
				return h, true
			}
		}
	}
	return Holding{}, false
}

// parseRecord parses a pod's stored record. It rejects a value that record.check would reject,
// and returns all mistakes.
func parseRecord(uid types.UID, value []byte) (*record, error) {
	var r record
	if err := strict(value, &r); err != nil {
		return nil, fmt.Errorf("devices of pod %s: %w", uid, err)
	}
	if err := r.check(uid); err != nil {
		return nil, err
	}
	return &r, nil
}

// check returns all mistakes in a pod's record. Other code relies on each of these rules.
func (r *record) check(uid types.UID) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Version != recordVersion {
		bad("version is %d; want %d", r.Version, recordVersion)
	}
	if r.UID != uid || uid == "" {
		bad("uid is %q; want %q", r.UID, uid)
	}
	seen := map[[2]string]bool{}
	for i, h := range r.Held {
		if h.Container == "" || seen[[2]string{h.Container, h.Resource}] {
			bad("held[%d] is of container %q and resource %q; want names, and each pair once", i, h.Container, h.Resource)
		}
		seen[[2]string{h.Container, h.Resource}] = true
		if err := CheckResource(h.Resource); err != nil {
			bad("held[%d]: %w", i, err)
		}
		if len(h.Devices) == 0 {
			bad("held[%d].devices is empty; want some", i)
		}
		for j, d := range h.Devices {
			// Ascending, and therefore unique.
			if d.ID == "" || j > 0 && h.Devices[j-1].ID >= d.ID {
				bad("held[%d].devices[%d].id is %q; want IDs in ascending order", i, j, d.ID)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("devices of pod %s: %w", uid, err)
	}
	return nil
}

// strict decodes one JSON value with nothing after it. It rejects unknown fields, which mean
// another version or another kind of file.
func strict(value []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("there is data after the JSON value")
	}
	return nil
}

// CheckResource returns an error if a plugin must not offer a resource with that name: it must be
// an extended resource. The rules are those of IsExtendedResourceName in Kubernetes. With a
// native name, a plugin could offer CPUs.
func CheckResource(name string) error {
	domain, rest, ok := strings.Cut(name, "/")
	good := ok && len(domain) <= maxDomain && !strings.HasPrefix(name, "requests.") && !strings.HasSuffix(domain, "kubernetes.io") &&
		qualified(rest, maxName, true)
	for label := range strings.SplitSeq(domain, ".") {
		good = good && qualified(label, maxName, false)
	}
	if !good {
		return fmt.Errorf("resource name %.256q: want domain/name, such as example.com/gpu; the domain may not be kubernetes.io "+
			"nor begin with \"requests.\"", name)
	}
	return nil
}

// The maximum lengths of the parts of a qualified name. The prefix "requests." of quotas has to
// fit before the domain.
const (
	maxDomain = 253 - len("requests.")
	maxName   = 63
)

// qualified reports whether s is a DNS label of at most limit bytes. If more is set, s may be the
// name part of a qualified name instead.
func qualified(s string, limit int, more bool) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i, c := range []byte(s) {
		// The first and last byte must be a letter or digit (RFC 1123).
		inner := i > 0 && i < len(s)-1
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case more && 'A' <= c && c <= 'Z':
		case inner && c == '-', inner && more && (c == '_' || c == '.'):
		default:
			return false
		}
	}
	return true
}
