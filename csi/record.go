package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// vol_data.json, the record beside the mount of a volume. With it, a volume can be unmounted
// without any API object.

// record is the content of vol_data.json, in the kubelet's format.
type record struct {
	Volume string // name of the volume; only in a publication
	Handle string
	Driver string
	// Node, Attachment and Ephemeral are only in the record of a publication. A kubelet that
	// takes over the node needs them. The agent does not read Node and Attachment.
	Node       string
	Attachment string
	Ephemeral  bool
	Context    string // the SELinux context of the mount
}

// Keys of vol_data.json, and the values of the volume lifecycle mode.
const (
	keyVolume     = "specVolID"
	keyHandle     = "volumeHandle"
	keyDriver     = "driverName"
	keyNode       = "nodeName"
	keyAttachment = "attachmentID"
	keyLifecycle  = "volumeLifecycleMode"
	keyContext    = "seLinuxMountContext"

	lifecyclePersistent = "Persistent"
	lifecycleEphemeral  = "Ephemeral"
)

// Limits for a record and its values. A handle may have 128 bytes in the CSI specification, but
// some drivers use more.
const (
	// maxRecord and maxHandle are in bytes.
	maxRecord = 64 << 10
	maxHandle = 4 << 10
)

// ErrRecord means that the content of a record is damaged. It differs from fs.ErrNotExist and
// from disk errors: only a volume with a damaged record is unmounted without its driver.
var ErrRecord = errors.New("the record of the volume is damaged")

// parseRecord parses vol_data.json. Unknown keys are ignored, since another version of the
// kubelet may have written them. Every error is an ErrRecord.
func parseRecord(b []byte) (record, error) {
	var m map[string]string
	if err := json.Unmarshal(b, &m); err != nil {
		return record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	r := record{
		Volume: m[keyVolume], Handle: m[keyHandle], Driver: m[keyDriver], Node: m[keyNode], Attachment: m[keyAttachment],
		Ephemeral: m[keyLifecycle] == lifecycleEphemeral, Context: m[keyContext],
	}
	if l := m[keyLifecycle]; l != "" && l != lifecycleEphemeral && l != lifecyclePersistent {
		return record{}, fmt.Errorf("%w: %s is %.64q; want Persistent or Ephemeral", ErrRecord, keyLifecycle, l)
	}
	if err := r.check(); err != nil {
		return record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return r, nil
}

// check returns an error if a field of the record cannot be used in calls and paths.
func (r record) check() error {
	if err := checkDriver(r.Driver); err != nil {
		return fmt.Errorf("%s: %w", keyDriver, err)
	}
	return checkHandle(r.Handle)
}

// checkHandle returns an error if a handle is invalid. maxHandle is in bytes; a
// handle is text without zero bytes.
func checkHandle(handle string) error {
	if handle == "" || len(handle) > maxHandle || strings.ContainsRune(handle, 0) {
		return fmt.Errorf("%s is %.64q, of %d bytes; want 1 to %d", keyHandle, handle, len(handle), maxHandle)
	}
	return nil
}

// encode returns vol_data.json for a record. Equal records have equal bytes. A record of a staged
// volume has only the driver, the handle and, if set, a context.
func (r record) encode() ([]byte, error) {
	m := map[string]string{keyHandle: r.Handle, keyDriver: r.Driver}
	if r.Volume != "" {
		m[keyVolume], m[keyNode], m[keyAttachment], m[keyLifecycle] = r.Volume, r.Node, r.Attachment, lifecyclePersistent
		if r.Ephemeral {
			m[keyLifecycle] = lifecycleEphemeral
		}
	}
	if r.Context != "" {
		m[keyContext] = r.Context
	}
	return json.Marshal(m)
}

// readRecord reads the record in dir. If there is none, the error is fs.ErrNotExist. It does not
// follow links, since pods can write nearby.
func readRecord(dir string) (record, error) {
	b, err := safefile.ReadFile(filepath.Join(dir, recordName), maxRecord)
	if errors.Is(err, safefile.ErrNotRegular) || errors.Is(err, safefile.ErrTooLarge) {
		return record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if err != nil {
		return record{}, err
	}
	r, err := parseRecord(b)
	if err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, recordName), err)
	}
	return r, nil
}

// writeRecord creates dir and writes the record into it. A power failure leaves the old or the
// new record. An equal record is not written, since republishing would write it each minute.
func writeRecord(dir string, r record) error {
	if have, err := readRecord(dir); err == nil && have == r {
		return nil
	}
	b, err := r.encode()
	if err != nil {
		return err
	}
	d := durable.Dir{Path: dir, Disk: durable.OS{DirMode: 0o750, FileMode: 0o600, Limit: maxRecord}, Sync: true}
	if err := d.Disk.MakeDir(dir); err != nil {
		return err
	}
	return d.Replace(recordName, b)
}

// removeRecord removes the record in dir, and temporary files of a crash. Missing files are not
// an error. A failed removal does not prevent the other one.
func removeRecord(dir string) error {
	var errs []error
	for _, name := range []string{recordName + durable.TempSuffix, recordName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
