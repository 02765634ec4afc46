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

// vol_data.json, the record beside the mount of a volume. With it a volume can be
// unmounted without any object of an API server.

// record is the stored description of a volume: the kubelet's vol_data.json.
type record struct {
	Volume string // name of the volume, of a publication only
	Handle string
	Driver string
	// Node, Attachment and Ephemeral are of a publication as well, for a kubelet that
	// takes over. Nothing here reads the first two.
	Node       string
	Attachment string
	Ephemeral  bool
	Context    string // the SELinux context that it is mounted with
}

// Keys of vol_data.json, and the two values of the volume lifecycle mode.
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

// Limits of a record and its values. A handle has 128 bytes by the CSI
// specification; some drivers use more.
const (
	// maxRecord and maxHandle are in bytes.
	maxRecord = 64 << 10
	maxHandle = 4 << 10
)

// ErrRecord means that a record is damaged. It is neither fs.ErrNotExist nor an
// error of the disk: only a volume with a damaged record is unmounted without its
// driver.
var ErrRecord = errors.New("the record of the volume is damaged")

// parseRecord reads vol_data.json. Unknown keys are ignored, as those of another
// version of the kubelet; every error is an ErrRecord.
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

// check returns an error if the fields of a record cannot be used in calls and
// paths.
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

// encode makes vol_data.json of a record. Equal records have equal bytes. A record of
// staging has the driver and the handle alone, and perhaps a context.
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

// readRecord reads the record in dir; fs.ErrNotExist if there is none. Links are
// not followed, since pods can write nearby.
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

// writeRecord writes the record into dir, which is created. After a power failure
// it is the old or the new one. An equal record is not written, since republishing
// would write it each minute.
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

// removeRecord removes the record in dir, and temporary files of a crash. Missing
// files are a success; both removals are tried.
func removeRecord(dir string) error {
	var errs []error
	for _, name := range []string{recordName + durable.TempSuffix, recordName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
