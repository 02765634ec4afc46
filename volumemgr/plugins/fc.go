package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// fcConfig configures the lunPlugin of newFC. Mounter and Root are required.
type fcConfig struct {
	Mounter mount.Mounter
	// Root is the agent's directory.
	Root string
	// Machine is the directory that contains dev and sys; "/".
	Machine string
	// Run executes blkid, fsck, mkfs, multipath and blockdev. If it is nil, os/exec does.
	Run Run
}

// Limits of a volume's source.
const (
	maxNames = 64  // WWNs or WWIDs
	maxName  = 256 // bytes
	maxLUN   = 255 // the API's limit
)

// appear limits the wait for a disk after a scan. others limits the wait for further paths to the
// disk after the first path was found.
const (
	appear = 20 * time.Second
	others = 2 * time.Second
)

// detail identifies a disk.
type detail struct {
	WWNs  []string `json:"wwns,omitempty"`
	LUN   int32    `json:"lun,omitempty"`
	WWIDs []string `json:"wwids,omitempty"`
	// Ours reports that the disk appeared because of a volume. A disk that existed before is not
	// removed.
	Ours bool `json:"ours,omitempty"`
}

type fcNetwork struct{ machine *lunMachine }

// newFC returns the plugin for disks on Fibre Channel.
//
//	p, err := newFC(fcConfig{Mounter: &mount.Kernel{}, Root: "/var/lib/agent"})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin, DevicePlugin and BlockPlugin
//
// A disk that existed before a volume used it is not removed after the last volume.
//
// A disk is identified by the WWNs of its targets with a LUN, or by its own WWIDs. The hosts are
// rescanned, and the disk is found by udev's links below /dev/disk. Pods get the multipath device
// of the disk if there is one.
//
// lunPlugin documents what all storage networks have in common, including faults.
func newFC(cfg fcConfig) (*lunPlugin, error) {
	p, err := newLUN(lunConfig{
		Mounter: cfg.Mounter, Root: cfg.Root, Run: cfg.Run,
		Network: fcNetwork{&lunMachine{Root: cfg.Machine, Run: cfg.Run}},
	})
	if err != nil {
		return nil, fmt.Errorf("fc: %w", err)
	}
	return p, nil
}

func (fcNetwork) Name() string { return "kubernetes.io/fc" }

// Source parses and checks a volume's source.
func (fcNetwork) Source(spec *volumemgr.Spec) (t lunTarget, fsType string, readOnly, ok bool, err error) {
	var s *v1.FCVolumeSource
	if pv := spec.PersistentVolume; pv != nil {
		s = pv.Spec.FC
	} else {
		s = spec.Volume.FC
	}
	if s == nil {
		return t, "", false, false, nil
	}
	d, err := check(s)
	if err != nil {
		return t, "", false, true, err
	}
	if t.Detail, err = json.Marshal(d); err != nil {
		return t, "", false, true, err
	}
	sum := sha256.Sum256(t.Detail)
	t.Key = hex.EncodeToString(sum[:])
	return t, s.FSType, s.ReadOnly, true, nil
}

// check returns the detail of a source. Sources of the same disk have equal details.
func check(s *v1.FCVolumeSource) (detail, error) {
	var d detail
	switch {
	case len(s.TargetWWNs) > 0 && len(s.WWIDs) > 0:
		return d, errors.New("fc.targetWWNs and fc.wwids are both set; want one of them")
	case len(s.TargetWWNs)+len(s.WWIDs) > maxNames:
		return d, fmt.Errorf("fc: %d names, want at most %d", len(s.TargetWWNs)+len(s.WWIDs), maxNames)
	case len(s.TargetWWNs) > 0 && s.Lun == nil:
		return d, errors.New("fc.lun is missing")
	case len(s.TargetWWNs) > 0 && (*s.Lun < 0 || *s.Lun > maxLUN):
		return d, fmt.Errorf("fc.lun %d, want 0 to %d", *s.Lun, maxLUN)
	case len(s.TargetWWNs)+len(s.WWIDs) == 0:
		return d, errors.New("fc.targetWWNs or fc.wwids are missing")
	}
	for _, w := range s.TargetWWNs {
		n := strings.TrimPrefix(strings.ToLower(w), "0x")
		if _, err := strconv.ParseUint(n, 16, 64); err != nil {
			return d, fmt.Errorf("fc.targetWWNs %.64q, want 16 hexadecimal digits", w)
		}
		d.WWNs = append(d.WWNs, n)
		d.LUN = *s.Lun
	}
	for _, w := range s.WWIDs {
		if w == "" || len(w) > maxName || strings.ContainsAny(w, "/\x00") {
			return d, fmt.Errorf("fc.wwids %.64q, want the name of a disk, of at most %d bytes without \"/\"", w, maxName)
		}
		d.WWIDs = append(d.WWIDs, strings.ReplaceAll(w, " ", "_")) // as in udev's links
	}
	slices.Sort(d.WWNs)
	slices.Sort(d.WWIDs)
	d.WWNs, d.WWIDs = slices.Compact(d.WWNs), slices.Compact(d.WWIDs)
	return d, nil
}

// isPath reports whether a link of /dev/disk/by-path leads to the disk: it ends in
// "fc-0xWWN-lun-LUN", after the address of the host adapter.
func (d detail) isPath(link string) bool {
	for _, w := range d.WWNs {
		if end := fmt.Sprintf("fc-0x%s-lun-%d", w, d.LUN); link == end || strings.HasSuffix(link, "-"+end) {
			return true
		}
	}
	return false
}

// isID reports whether a link of /dev/disk/by-id leads to the disk.
func (d detail) isID(link string) bool {
	id, ok := strings.CutPrefix(link, "scsi-")
	return ok && slices.Contains(d.WWIDs, id)
}

func (n fcNetwork) find(d detail) ([]string, error) {
	if len(d.WWNs) > 0 {
		return n.machine.Links(byPath, d.isPath)
	}
	return n.machine.Links(byID, d.isID)
}

// Attach finds the disk. If it is missing, Attach rescans the hosts.
func (n fcNetwork) Attach(ctx context.Context, t lunTarget, _ *volumemgr.Volume, _ []lunTarget, note func(any) error) (string, error) {
	d, err := read(t)
	if err != nil {
		return "", err
	}
	find := func() ([]string, error) { return n.find(d) }
	found, err := find()
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		d.Ours = true
		if err := note(d); err != nil {
			return "", err
		}
		scanned := n.machine.Rescan(ctx)
		if found, err = n.machine.Wait(ctx, 1, appear, find); err != nil {
			return "", err
		}
		if len(found) == 0 {
			return "", errors.Join(errors.New("no disk has appeared with the WWNs and the LUN, or the WWIDs, of the volume"), scanned)
		}
		if found, err = n.machine.Wait(ctx, max(1, len(d.WWNs)), others, find); err != nil {
			return "", err
		}
	}
	return n.machine.Device(found)
}

// Detach removes the disk, unless it existed before or another volume uses it in the other
// volumeMode.
func (n fcNetwork) Detach(ctx context.Context, t lunTarget, stay []lunTarget) error {
	if slices.ContainsFunc(stay, func(o lunTarget) bool { return o.Key == t.Key }) {
		return nil
	}
	d, err := read(t)
	if err != nil || !d.Ours {
		return err
	}
	found, err := n.find(d)
	if err != nil {
		return err
	}
	return n.machine.Remove(ctx, found)
}

func read(t lunTarget) (d detail, err error) {
	if err := json.Unmarshal(t.Detail, &d); err != nil {
		return d, fmt.Errorf("fc: decode record of %s: %w", t.Key, err)
	}
	return d, nil
}
