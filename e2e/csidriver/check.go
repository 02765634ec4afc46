package main

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"strings"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/quantity"
)

// Sizes of volumes, in bytes.
const (
	defaultSize = 1 << 30
	minDisk     = 4 << 20 // ext4 with a journal
	maxSize     = 1 << 50
)

// Keys of parameters and of attributes, and their values.
const (
	keyKind      = "kind"
	keyCreate    = "create"
	keySize      = "size"
	keyTier      = "tier" // the only mutable parameter
	kindDisk     = "disk"
	kindDir      = "directory"
	reserved     = "csi.storage.k8s.io/" // prefix of keys that the agent and the provisioner add
	keyEphemeral = reserved + "ephemeral"
	keyAttached  = "attached" // in the publish context
)

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// digest returns an ID for a name. It is a hash, so that the same name always has the
// same ID.
func digest(kind, name string) string {
	sum := sha256.Sum256([]byte(name))
	return kind + "-" + hex.EncodeToString(sum[:16])
}

// isDigest reports whether an ID or a token has the form of a result of digest.
func isDigest(kind, id string) bool {
	rest, ok := strings.CutPrefix(id, kind+"-")
	if !ok || len(rest) != 32 {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil
}

// required returns an error for an empty value, and for one longer than maxField.
func required(field, value string) error {
	if value == "" {
		return invalid("%s is missing", field)
	}
	if len(value) > maxField {
		return invalid("%s has %d bytes, want at most %d", field, len(value), maxField)
	}
	return nil
}

// path returns an error unless the value is an absolute path in its shortest form.
func path(field, value string) error {
	if value == "" {
		return invalid("%s is missing", field)
	}
	if len(value) >= maxPath || !filepath.IsAbs(value) || filepath.Clean(value) != value || value == "/" || strings.ContainsRune(value, 0) {
		return invalid("%s %.200q: want an absolute path without \"..\", of less than %d bytes", field, value, maxPath)
	}
	return nil
}

// small returns an error for a map larger than maxMap.
func small(field string, m map[string]string) error {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	if n > maxMap {
		return invalid("%s has %d bytes, want at most %d", field, n, maxMap)
	}
	return nil
}

// capability returns an error for a capability that neither directories nor disk images
// have.
func capability(c *csi.VolumeCapability) error {
	switch {
	case c == nil:
		return invalid("volume_capability is missing")
	case c.GetMount() == nil && c.GetBlock() == nil:
		return invalid("volume_capability.access_type is missing")
	}
	mode := c.GetAccessMode().GetMode()
	if _, known := csi.VolumeCapability_AccessMode_Mode_name[int32(mode)]; !known || mode == csi.VolumeCapability_AccessMode_UNKNOWN {
		return invalid("volume_capability.access_mode %v: want one of the specification", mode)
	}
	m := c.GetMount()
	if m == nil {
		return nil
	}
	if m.FsType != "" && m.FsType != ext4 {
		return invalid("volume_capability.mount.fs_type %.64q: want %s, or none", m.FsType, ext4)
	}
	n := 0
	for _, f := range m.MountFlags {
		n += len(f)
		if strings.ContainsAny(f, "\x00\n") {
			return invalid("volume_capability.mount.mount_flags: %.64q is no option", f)
		}
	}
	if n > maxMap {
		return invalid("volume_capability.mount.mount_flags have %d bytes, want at most %d", n, maxMap)
	}
	if _, err := group(m.VolumeMountGroup); err != nil {
		return err
	}
	return nil
}

// group parses volume_mount_group. It returns nil if s is "".
func group(s string) (*int64, error) {
	if s == "" {
		return nil, nil
	}
	gid, err := strconv.ParseInt(s, 10, 64)
	if err != nil || gid < 0 || gid >= 1<<32-1 {
		return nil, invalid("volume_mount_group %.32q: want a number of 0 to 4294967294", s)
	}
	return &gid, nil
}

// capabilities checks the capabilities of a volume. disk is true if one of them requires a disk
// image.
func capabilities(list []*csi.VolumeCapability) (disk bool, err error) {
	if len(list) == 0 {
		return false, invalid("volume_capabilities are missing")
	}
	for _, c := range list {
		if err := capability(c); err != nil {
			return false, err
		}
		disk = disk || c.GetBlock() != nil || c.GetMount().GetFsType() != ""
	}
	return disk, nil
}

// kind returns whether a volume is a disk image, by the value at key. disk is the
// result for a map without the key.
func kind(m map[string]string, key string, disk bool) (isDisk bool, err error) {
	switch m[key] {
	case "":
		return disk, nil
	case kindDisk:
		return true, nil
	case kindDir:
		if disk {
			return false, invalid("%s %q: block devices and file systems with a name take %q", key, kindDir, kindDisk)
		}
		return false, nil
	}
	return false, invalid("%s %.64q: want %q or %q", key, m[key], kindDisk, kindDir)
}

// known returns an error for a key that is neither in keys nor one of Kubernetes.
func known(field string, m map[string]string, keys ...string) error {
	if err := small(field, m); err != nil {
		return err
	}
next:
	for k := range m {
		if strings.HasPrefix(k, reserved) || strings.HasPrefix(k, "storage.kubernetes.io/") {
			continue
		}
		for _, want := range keys {
			if k == want {
				continue next
			}
		}
		return invalid("%s: %.64q is not known, want of %q", field, k, keys)
	}
	return nil
}

// sizeOf chooses the size of a new volume.
func sizeOf(r *csi.CapacityRange, disk bool) (int64, error) {
	least, most := r.GetRequiredBytes(), r.GetLimitBytes()
	if least < 0 || most < 0 || most != 0 && most < least {
		return 0, invalid("capacity_range of %d to %d bytes is none", least, most)
	}
	if most == 0 {
		most = maxSize
	}
	if least == 0 {
		least = min(defaultSize, most)
	}
	if disk {
		least = max(least, minDisk)
	}
	if least > most || least > maxSize {
		return 0, status.Errorf(codes.OutOfRange, "capacity_range: want %d to %d bytes", minDisk, int64(maxSize))
	}
	return least, nil
}

// attributeSize returns the size of an inline volume, or of a volume of a manifest: the attribute
// size, or a default for the kind of volume.
func attributeSize(m map[string]string, disk bool) (int64, error) {
	s := m[keySize]
	if s == "" {
		return sizeOf(nil, disk)
	}
	q, err := quantity.Parse(s)
	if err != nil || q.Sign() <= 0 || q.CmpInt64(maxSize) > 0 {
		return 0, invalid("%s %q: want a quantity of 1 to %d bytes", keySize, s[:min(len(s), maxField)], int64(maxSize))
	}
	return sizeOf(&csi.CapacityRange{RequiredBytes: q.Value()}, disk)
}
