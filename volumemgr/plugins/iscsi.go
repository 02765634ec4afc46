package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// iscsiConfig configures the lunPlugin of newISCSI. Mounter and Root are required.
type iscsiConfig struct {
	Mounter mount.Mounter
	// Root is the agent's directory.
	Root string
	// Source reads the Secrets for CHAP. If it is nil, volumes with CHAP fail.
	Source ContentSource
	// Machine is the directory that contains dev, sys and iscsiadm's database; "/".
	Machine string
	// Run executes blkid, fsck, mkfs, iscsiadm, multipath and blockdev. If it is nil, os/exec
	// does.
	Run Run
}

// Times, and exit codes of iscsiadm(8).
const (
	commandTime = 30 * time.Second
	iscsiAppear = 20 * time.Second
	iscsiOthers = 10 * time.Second // wait for further paths, and for multipathd
	exists      = 15               // the session exists already
	noObject    = 21               // no such record, session or portal
)

type iscsiNetwork struct {
	machine  *lunMachine
	source   ContentSource
	database *database
}

// newISCSI returns the plugin for disks of iSCSI targets, which uses iscsiadm(8).
//
//	p, err := newISCSI(iscsiConfig{Mounter: &mount.Kernel{}, Root: "/var/lib/agent", Source: objects})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin, DevicePlugin and BlockPlugin
//
// After the node has logged in to the target, a disk is found by its link in /dev/disk/by-path.
// With several portals, pods get the multipath device of the disk. A session that existed before
// a volume used it is kept. Other sessions are closed when the last volume on a disk of the
// target is gone.
//
// # Secrets
//
// CHAP secrets are written to the files of iscsiadm's database, which only root can read, and not
// passed on a command line, which every process can read. Errors and records never contain them.
//
// lunPlugin documents what all storage networks have in common, including faults.
func newISCSI(cfg iscsiConfig) (*lunPlugin, error) {
	n := &iscsiNetwork{machine: &lunMachine{Root: cfg.Machine, Run: cfg.Run}, source: cfg.Source, database: &database{root: cfg.Machine}}
	p, err := newLUN(lunConfig{Mounter: cfg.Mounter, Root: cfg.Root, Run: cfg.Run, Network: n})
	if err != nil {
		return nil, fmt.Errorf("iscsi: %w", err)
	}
	return p, nil
}

func (*iscsiNetwork) Name() string { return "kubernetes.io/iscsi" }

// admin runs iscsiadm. Exit codes in fine are not errors.
func (n *iscsiNetwork) admin(ctx context.Context, fine []int, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, exit, err := n.machine.Program(ctx, "iscsiadm", args...)
	if err == nil && exit != 0 && !slices.Contains(fine, exit) {
		err = fmt.Errorf("exit %d: %s", exit, shown(out))
	}
	if err != nil {
		return "", fmt.Errorf("run iscsiadm %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// Attach logs in through all portals that answer, and returns the disk's device.
func (n *iscsiNetwork) Attach(ctx context.Context, t lunTarget, v *volumemgr.Volume, stay []lunTarget, note func(any) error) (string, error) {
	d, err := iscsiRead(t)
	if err != nil {
		return "", err
	}
	secret, err := n.secret(ctx, v, d)
	if err != nil {
		return "", err
	}
	if err := n.makeInterface(ctx, &d, note); err != nil {
		return "", err
	}
	sessions, err := n.sessions(ctx)
	if err != nil {
		return "", err
	}
	find := func() ([]string, error) { return n.machine.Links(byPath, d.isPath) }
	shared, err := ours(stay, d)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, p := range d.Portals {
		there := sessions[session{p, d.IQN}]
		if there && !slices.Contains(shared, p) {
			continue // the session existed before, or its login is recorded
		}
		if !slices.Contains(d.Ours, p) {
			d.Ours = append(d.Ours, p)
			if err := note(d); err != nil {
				return "", err
			}
		}
		if there {
			continue
		}
		if err := n.login(ctx, d, p, secret); err != nil {
			errs = append(errs, fmt.Errorf("portal %s: %w", p, err))
		}
	}
	if len(errs) == len(d.Portals) {
		return "", errors.Join(errs...)
	}
	found, err := find()
	if err == nil && len(found) == 0 {
		_, rescan := n.admin(ctx, []int{noObject}, "-m", "node", "-T", d.IQN, "-R") // an existing session does not find new disks by itself
		errs = append(errs, rescan)
		found, err = n.machine.Wait(ctx, 1, iscsiAppear, find)
	}
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", errors.Join(fmt.Errorf("target %s has shown no disk with LUN %d", d.IQN, d.LUN), errors.Join(errs...))
	}
	return n.device(ctx, d, found, find)
}

// ours returns the portals to which the node has logged in for volumes on other disks of the same
// target.
func ours(others []lunTarget, d iscsiDetail) (out []string, err error) {
	for _, o := range others {
		other, err := iscsiRead(o)
		if err != nil {
			return nil, err
		}
		if other.IQN == d.IQN && other.Interface == d.Interface {
			out = append(out, other.Ours...)
		}
	}
	return out, nil
}

// device waits for the other paths to the disk and, if there are several, for the multipath
// device on top.
func (n *iscsiNetwork) device(ctx context.Context, d iscsiDetail, found []string, find func() ([]string, error)) (string, error) {
	if len(d.Portals) > 1 {
		var err error
		if found, err = n.machine.Wait(ctx, len(d.Portals), iscsiOthers, find); err != nil {
			return "", err
		}
	}
	if len(found) > 1 {
		_, err := n.machine.Wait(ctx, 1, iscsiOthers, func() ([]string, error) {
			top, err := n.machine.Multipath(found[0])
			if top == "" {
				return nil, err
			}
			return []string{top}, err
		})
		if err != nil {
			return "", err
		}
	}
	return n.machine.Device(found)
}

// login creates the records of a portal and its target, and logs in.
func (n *iscsiNetwork) login(ctx context.Context, d iscsiDetail, portal string, secret map[string][]byte) error {
	discovery := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", d.Interface}
	node := []string{"-m", "node", "-p", portal, "-T", d.IQN, "-I", d.Interface}
	if d.DiscoverCHAP {
		if _, err := n.admin(ctx, nil, append(slices.Clone(discovery), "-o", "new")...); err != nil {
			return err
		}
		if err := n.database.set(discoveryFile(portal), chapOf("discovery.sendtargets.", secret)); err != nil {
			return err
		}
	}
	if _, err := n.admin(ctx, nil, append(slices.Clone(discovery), "--discover")...); err != nil {
		if d.DiscoverCHAP {
			return err
		}
		// Some targets do not support discovery, so the record is created without it.
		if _, nerr := n.admin(ctx, nil, append(slices.Clone(node), "-o", "new")...); nerr != nil {
			return errors.Join(err, nerr)
		}
	}
	if d.SessionCHAP {
		if err := n.database.set(nodeFiles(d.IQN, portal, d.Interface), chapOf("node.session.", secret)); err != nil {
			return err
		}
	}
	if _, err := n.admin(ctx, []int{exists}, append(slices.Clone(node), "--login")...); err != nil {
		return err
	}
	// startup = manual: the node logs in for a volume, not at boot.
	_, err := n.admin(ctx, nil, append(slices.Clone(node), "-o", "update", "-n", "node.startup", "-v", "manual")...)
	return err
}

// interfaceOf returns the name of the interface to use for a disk's initiator name.
func interfaceOf(d iscsiDetail) string {
	sum := sha256.Sum256([]byte(d.Interface + "\n" + d.Initiator))
	return "nodewright-" + hex.EncodeToString(sum[:8])
}

// makeInterface creates a copy of d's interface with the initiator's name.
func (n *iscsiNetwork) makeInterface(ctx context.Context, d *iscsiDetail, note func(any) error) error {
	if d.Initiator == "" || d.Made {
		return nil
	}
	shown, err := n.admin(ctx, nil, "-m", "iface", "-I", d.Interface, "-o", "show")
	if err != nil {
		return err
	}
	own := interfaceOf(*d)
	if _, err := n.admin(ctx, []int{exists}, "-m", "iface", "-I", own, "-o", "new"); err != nil {
		return err
	}
	for _, s := range append(settings(shown), [2]string{"iface.initiatorname", d.Initiator}) {
		if _, err := n.admin(ctx, nil, "-m", "iface", "-I", own, "-o", "update", "-n", s[0], "-v", s[1]); err != nil {
			return err
		}
	}
	d.Interface, d.Made = own, true
	return note(*d)
}

// maxSettings limits the number of an interface's settings that are copied.
const maxSettings = 64

// settings returns the settings of an interface from iscsiadm's output: those with a value,
// except the name.
func settings(shown string) (out [][2]string) {
	for line := range strings.Lines(shown) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok || !strings.HasPrefix(key, "iface.") || key == "iface.iscsi_ifacename" || key == "iface.initiatorname" ||
			value == "" || value == "<empty>" || strings.HasPrefix(value, "-") || strings.ContainsAny(key+value, " \t\x00") {
			continue
		}
		if out = append(out, [2]string{key, value}); len(out) == maxSettings {
			break
		}
	}
	return out
}

type session struct{ portal, iqn string }

// sessions returns the node's sessions, by portal and target.
func (n *iscsiNetwork) sessions(ctx context.Context) (map[session]bool, error) {
	out, err := n.admin(ctx, []int{noObject}, "-m", "session")
	if err != nil {
		return nil, err
	}
	return sessionsIn(out), nil
}

// sessionsIn parses lines such as
//
//	tcp: [1] 10.0.0.1:3260,1 iqn.2001-04.com.example:disk (non-flash)
func sessionsIn(out string) map[session]bool {
	found := map[session]bool{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[1], "[") {
			continue
		}
		portal, _, _ := strings.Cut(f[2], ",")
		if p, err := portalOf("", portal); err == nil {
			found[session{p, f[3]}] = true
		}
	}
	return found
}

// Detach removes the disk. It closes the sessions that were opened for volumes, unless another
// volume has a disk of the same target.
func (n *iscsiNetwork) Detach(ctx context.Context, t lunTarget, stay []lunTarget) error {
	d, err := iscsiRead(t)
	if err != nil {
		return err
	}
	for _, o := range stay {
		other, err := iscsiRead(o)
		if err != nil {
			return err
		}
		if o.Key == t.Key {
			return nil // another volume uses it in the other volumeMode
		}
		if other.IQN == d.IQN && other.Interface == d.Interface {
			d.Ours = nil
		}
	}
	found, err := n.machine.Links(byPath, d.isPath)
	if err != nil {
		return err
	}
	if err := n.machine.Remove(ctx, found); err != nil {
		return err
	}
	for _, p := range d.Ours {
		node := []string{"-m", "node", "-p", p, "-T", d.IQN, "-I", d.Interface}
		if _, err := n.admin(ctx, []int{noObject}, append(slices.Clone(node), "--logout")...); err != nil {
			return err
		}
		if _, err := n.admin(ctx, []int{noObject}, append(slices.Clone(node), "-o", "delete")...); err != nil { // removes the CHAP secret too
			return err
		}
	}
	if d.Made && len(d.Ours) > 0 {
		if _, err := n.admin(ctx, []int{noObject}, "-m", "iface", "-I", d.Interface, "-o", "delete"); err != nil {
			return err
		}
	}
	return nil
}

func iscsiRead(t lunTarget) (d iscsiDetail, err error) {
	if err := json.Unmarshal(t.Detail, &d); err != nil {
		return d, fmt.Errorf("iscsi: decode record of %s: %w", t.Key, err)
	}
	return d, nil
}

// secret reads the CHAP Secret, if the volume uses CHAP.
func (n *iscsiNetwork) secret(ctx context.Context, v *volumemgr.Volume, d iscsiDetail) (map[string][]byte, error) {
	if !d.DiscoverCHAP && !d.SessionCHAP {
		return nil, nil
	}
	s := sourceOf(v.Spec)
	namespace := s.namespace
	if namespace == "" && v.Pod != nil {
		namespace = v.Pod.Namespace
	}
	if n.source == nil {
		return nil, errors.New("iscsi.secretRef: no source of Secrets is configured")
	}
	o, err := n.source.Get(ctx, "Secret", namespace, s.SecretRef.Name)
	if err != nil {
		return nil, fmt.Errorf("iscsi.secretRef: %w", err)
	}
	return o.Data, nil
}
