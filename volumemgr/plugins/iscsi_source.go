package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

// Limits of a volume's source. Those of names come from RFC 3720.
const (
	maxPortals   = 64
	iscsiMaxName = 223 // bytes
	iscsiMaxLUN  = 255 // the API's limit
	port         = "3260"
)

// iscsiDetail identifies a disk and the portals that lead to it.
type iscsiDetail struct {
	IQN     string   `json:"iqn"`
	LUN     int32    `json:"lun"`
	Portals []string `json:"portals"` // host:port, the target portal first
	// Interface is the name of iscsiadm's interface. Initiator is the name of the initiator. If
	// Initiator is "", it is the node's initiator.
	Interface    string `json:"interface"`
	Initiator    string `json:"initiator,omitempty"`
	DiscoverCHAP bool   `json:"discoveryCHAP,omitempty"`
	SessionCHAP  bool   `json:"sessionCHAP,omitempty"`
	// Ours lists the portals that this package logged in to. The others already had a session.
	Ours []string `json:"ours,omitempty"`
	// Made reports that Interface was created for the initiator name.
	Made bool `json:"made,omitempty"`
}

// iscsiSource has the common fields of the API's two types of sources.
type iscsiSource struct {
	v1.ISCSIPersistentVolumeSource
	namespace string // namespace of the Secret; "" is the pod's
}

func sourceOf(spec *volumemgr.Spec) *iscsiSource {
	if pv := spec.PersistentVolume; pv != nil {
		if pv.Spec.ISCSI == nil {
			return nil
		}
		s := &iscsiSource{ISCSIPersistentVolumeSource: *pv.Spec.ISCSI}
		if s.SecretRef != nil {
			s.namespace = s.SecretRef.Namespace
		}
		return s
	}
	i := spec.Volume.ISCSI
	if i == nil {
		return nil
	}
	s := &iscsiSource{ISCSIPersistentVolumeSource: v1.ISCSIPersistentVolumeSource{
		TargetPortal: i.TargetPortal, IQN: i.IQN, Lun: i.Lun, ISCSIInterface: i.ISCSIInterface, FSType: i.FSType, ReadOnly: i.ReadOnly,
		Portals: i.Portals, DiscoveryCHAPAuth: i.DiscoveryCHAPAuth, SessionCHAPAuth: i.SessionCHAPAuth, InitiatorName: i.InitiatorName,
	}}
	if i.SecretRef != nil {
		s.SecretRef = &v1.SecretReference{Name: i.SecretRef.Name}
	}
	return s
}

// Names of targets and initiators (RFC 3720, 3.2.6), and of interfaces. They become arguments of
// a program and file names, so none begins with "-" or contains "/".
var (
	iscsiNames = regexp.MustCompile(`^(iqn|eui|naa)\.[A-Za-z0-9][A-Za-z0-9.:_-]*$`)
	interfaces = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:_-]*$`)
	hosts      = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
)

// portalOf checks a portal and adds the default port: "host", "host:port", "[address]:port".
func portalOf(field, s string) (string, error) {
	bad := fmt.Errorf("%s %.64q, want a host or an address, with a port if it is not %s", field, s, port)
	if len(s) > iscsiMaxName {
		return "", bad
	}
	host, p := s, port
	if h, q, err := net.SplitHostPort(s); err == nil {
		host, p = h, q
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
		return "", bad
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return net.JoinHostPort(a.String(), p), nil
	}
	if !hosts.MatchString(host) {
		return "", bad
	}
	return net.JoinHostPort(host, p), nil
}

func iscsiCheck(s *iscsiSource) (iscsiDetail, error) {
	d := iscsiDetail{IQN: s.IQN, LUN: s.Lun, Interface: s.ISCSIInterface, DiscoverCHAP: s.DiscoveryCHAPAuth, SessionCHAP: s.SessionCHAPAuth}
	if d.Interface == "" {
		d.Interface = "default"
	}
	switch {
	case len(d.IQN) > iscsiMaxName || !iscsiNames.MatchString(d.IQN):
		return d, fmt.Errorf("iscsi.iqn %.64q, want the name of a target, such as iqn.2001-04.com.example:disk", d.IQN)
	case d.LUN < 0 || d.LUN > iscsiMaxLUN:
		return d, fmt.Errorf("iscsi.lun %d, want 0 to %d", d.LUN, iscsiMaxLUN)
	case len(d.Interface) > iscsiMaxName || !interfaces.MatchString(d.Interface):
		return d, fmt.Errorf("iscsi.iscsiInterface %.64q, want a name of iscsiadm's interfaces", d.Interface)
	case len(s.Portals) >= maxPortals:
		return d, fmt.Errorf("iscsi.portals: %d, want less than %d", len(s.Portals), maxPortals)
	case (d.DiscoverCHAP || d.SessionCHAP) && s.SecretRef == nil:
		return d, fmt.Errorf("iscsi.secretRef is missing; CHAP needs it")
	}
	if s.InitiatorName != nil && *s.InitiatorName != "" {
		if d.Initiator = *s.InitiatorName; len(d.Initiator) > iscsiMaxName || !iscsiNames.MatchString(d.Initiator) {
			return d, fmt.Errorf("iscsi.initiatorName %.64q, want the name of an initiator, such as iqn.2001-04.com.example:node", d.Initiator)
		}
	}
	for i, s := range append([]string{s.TargetPortal}, s.Portals...) {
		field := "iscsi.portals"
		if i == 0 {
			field = "iscsi.targetPortal"
		}
		p, err := portalOf(field, s)
		if err != nil {
			return d, err
		}
		if !slices.Contains(d.Portals, p) {
			d.Portals = append(d.Portals, p)
		}
	}
	return d, nil
}

// key returns the target and the LUN. It is equal for all volumes on a disk, whichever portal
// they name first.
func (d iscsiDetail) key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s\n%s", d.IQN, d.LUN, d.Interface, d.Initiator))
	return hex.EncodeToString(sum[:])
}

// Source parses and checks a volume's source.
func (*iscsiNetwork) Source(spec *volumemgr.Spec) (t lunTarget, fsType string, readOnly, ok bool, err error) {
	s := sourceOf(spec)
	if s == nil {
		return t, "", false, false, nil
	}
	d, err := iscsiCheck(s)
	if err != nil {
		return t, "", false, true, err
	}
	t.Key, t.Lock = d.key(), d.IQN // all disks of a target share its sessions
	t.Detail, err = json.Marshal(d)
	return t, s.FSType, s.ReadOnly, true, err
}

// isPath reports whether a link of /dev/disk/by-path leads to the disk. Links of hardware
// adapters begin with the adapter's address.
func (d iscsiDetail) isPath(link string) bool {
	for _, p := range d.Portals {
		if end := fmt.Sprintf("ip-%s-iscsi-%s-lun-%d", p, d.IQN, d.LUN); link == end || strings.HasSuffix(link, "-"+end) {
			return true
		}
	}
	return false
}
