package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// The records of claims on disk. Each claim has its own JSON value, so that damage affects one
// claim, and a change writes only one value.

// claimPrefix is the prefix of keys in the store; a claim's UID follows it.
const claimPrefix = "claim."

// recordVersion is the version of stored values. A record with another version counts as damaged:
// the claim is prepared again at the next sync.
const recordVersion = 1

// record is the stored form of a claim.
type record struct {
	Version   int            `json:"version"`
	UID       types.UID      `json:"uid"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Boot      string         `json:"boot,omitempty"` // the boot in which the record was written
	Pods      []*podRef      `json:"pods"`           // by UID
	Drivers   []driverRecord `json:"drivers"`        // by name
}

// driverRecord is the stored part of a driver. Every driver that may have been called has one,
// prepared or not, since it is needed to unprepare a claim after a crash.
type driverRecord struct {
	Name     string   `json:"name"`
	Prepared bool     `json:"prepared,omitempty"`
	Devices  []Device `json:"devices,omitempty"` // as the driver returned them; only if the claim is prepared
}

// record returns the stored form of the claim. Pods and drivers are sorted, so that equal claims
// have equal records. Manager.mu is held. The result may be read without it.
func (c *claim) record(boot string) record {
	r := record{Version: recordVersion, UID: c.UID, Namespace: c.Namespace, Name: c.Name, Boot: boot}
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		r.Pods = append(r.Pods, c.pods[uid])
	}
	for _, name := range c.drivers() {
		p := c.parts[name]
		r.Drivers = append(r.Drivers, driverRecord{name, p.prepared, p.devices})
	}
	return r
}

// parseRecord parses a stored claim. uid is the UID in the key. A value that this package cannot
// have written is an error with all mistakes. So is a value with another UID, such as a copied
// file.
func parseRecord(uid types.UID, value []byte) (*record, error) {
	var r record
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return nil, err
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if dec.More() {
		bad("there is data after the JSON value")
	}
	if r.Version != recordVersion {
		bad("version is %d; want %d", r.Version, recordVersion)
	}
	if r.UID != uid || checkUID(uid) != nil {
		bad("uid is %q; want %q", r.UID, uid)
	}
	if r.Namespace == "" || r.Name == "" {
		bad("namespace is %q and name %q; want both", r.Namespace, r.Name)
	}
	// A claim that no pod uses has no record.
	if len(r.Pods) == 0 {
		bad("pods is empty; want some")
	}
	for i, p := range r.Pods {
		if p == nil || p.UID == "" || i > 0 && r.Pods[i-1] != nil && r.Pods[i-1].UID >= p.UID {
			bad("pods[%d]: want UIDs in ascending order", i)
		}
	}
	for i, d := range r.Drivers {
		if err := checkDriver(d.Name); err != nil {
			bad("drivers[%d]: %w", i, err)
		}
		if i > 0 && r.Drivers[i-1].Name >= d.Name {
			bad("drivers[%d].name is %q; want names in ascending order", i, d.Name)
		}
		if !d.Prepared && len(d.Devices) > 0 {
			bad("drivers[%d] has devices and is not prepared", i)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &r, nil
}

// maxUID is the longest UID in bytes. It leaves space for the prefix in a key of a
// checkpoint.Store.
const maxUID = 128

// checkUID returns an error if a UID cannot be part of a key, which may become the name of a
// file. UIDs from an API server have hexadecimal digits and dashes, but claims may come from
// elsewhere.
func checkUID(uid types.UID) error {
	good := uid != "" && len(uid) <= maxUID
	for _, c := range []byte(uid) {
		good = good && ('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '.')
	}
	if !good {
		return fmt.Errorf("metadata.uid is %q; want 1 to %d of a-z, A-Z, 0-9, '-', '_' and '.'", uid, maxUID)
	}
	return nil
}

// maxDriver is the longest name of a driver in bytes, as in resource.k8s.io.
const maxDriver = 63

// checkDriver returns an error if the name of a driver is not a DNS subdomain; letters may have
// any case.
func checkDriver(name string) error {
	good := name != "" && len(name) <= maxDriver
	alnum := func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
	for i := range len(name) {
		switch c := name[i]; {
		case alnum(c):
		// A label is not empty, and neither begins nor ends with a dash. Two dashes in a row are
		// allowed.
		case (c == '-' || c == '.') && i > 0 && i < len(name)-1 && (c == '-' && name[i-1] != '.' && name[i+1] != '.' || alnum(name[i-1]) && alnum(name[i+1])):
		default:
			good = false
		}
	}
	if !good {
		return fmt.Errorf("driver name %.128q: want a DNS subdomain of at most %d bytes, such as gpu.example.com", name, maxDriver)
	}
	return nil
}
