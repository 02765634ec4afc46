package podmgr

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxMode has the permission bits alone: no file
	// of a volume may change its user or group.
	maxMode       = 0o777
	maxDriverName = 63  // CSI specification, GetPluginInfo
	maxLUN        = 255 // the API's documentation of iscsi
)

// iscsiName is the name of a target (RFC 3720, 3.2.6.3).
var iscsiName = regexp.MustCompile(`^(iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)?|eui\.[[:alnum:]]{16}|naa\.[[:alnum:]]{32})$`)

// sources checks the fields of a volume's source. Fields of kinds that are not here have
// no rules that a node depends on, or are checked when the volume is mounted.
func (v *podValidator) sources(vol *v1.VolumeSource, p *field.Path) {
	if c := vol.ConfigMap; c != nil {
		v.files(c.Items, c.DefaultMode, p.Child("configMap"))
	}
	if s := vol.Secret; s != nil {
		v.files(s.Items, s.DefaultMode, p.Child("secret"))
	}
	if d := vol.DownwardAPI; d != nil {
		v.mode(d.DefaultMode, p.Child("downwardAPI", "defaultMode"))
		v.shown(d.Items, p.Child("downwardAPI"))
	}
	if pr := vol.Projected; pr != nil {
		v.mode(pr.DefaultMode, p.Child("projected", "defaultMode"))
		v.projected(pr, p.Child("projected"))
	}
	if n := vol.NFS; n != nil {
		np := p.Child("nfs")
		v.required(np.Child("server"), n.Server)
		if !path.IsAbs(n.Path) {
			v.add(field.Invalid(np.Child("path"), n.Path, "must be an absolute path"))
		}
	}
	if c := vol.CSI; c != nil {
		v.driver(c.Driver, p.Child("csi", "driver"))
	}
	if i := vol.ISCSI; i != nil {
		v.iscsi(i, p.Child("iscsi"))
	}
	if i := vol.Image; i != nil {
		v.required(p.Child("image", "reference"), i.Reference)
	}
	if e := vol.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
		// The claim would be made from the template by a
		// controller, which relies on these fields.
		tp := p.Child("ephemeral", "volumeClaimTemplate", "spec")
		if len(e.VolumeClaimTemplate.Spec.AccessModes) == 0 {
			v.add(field.Required(tp.Child("accessModes"), "at least one"))
		}
		if q := e.VolumeClaimTemplate.Spec.Resources.Requests[v1.ResourceStorage]; q.Sign() <= 0 {
			v.add(field.Required(tp.Child("resources", "requests").Key("storage"), "more than 0"))
		}
	}
}

// required adds a mistake for a field without a value.
func (v *podValidator) required(p *field.Path, value string) {
	if value == "" {
		v.add(field.Required(p, ""))
	}
}

// mode checks the permission bits of files; nil means the default.
func (v *podValidator) mode(mode *int32, p *field.Path) {
	if mode != nil && (*mode < 0 || *mode > maxMode) {
		v.add(field.Invalid(p, *mode, fmt.Sprintf("must be 0 to %d (0777 octal)", maxMode)))
	}
}

// files checks which keys become which files.
func (v *podValidator) files(items []v1.KeyToPath, mode *int32, p *field.Path) {
	// Of a projected volume the mode is that of the whole volume, and is nil here.
	v.mode(mode, p.Child("defaultMode"))
	for i := range items {
		ip := p.Child("items").Index(i)
		v.required(ip.Child("key"), items[i].Key)
		v.inVolume(items[i].Path, ip.Child("path"))
		v.mode(items[i].Mode, ip.Child("mode"))
	}
}

// shown checks which fields become which files.
func (v *podValidator) shown(items []v1.DownwardAPIVolumeFile, p *field.Path) {
	for i := range items {
		ip := p.Child("items").Index(i)
		v.inVolume(items[i].Path, ip.Child("path"))
		v.mode(items[i].Mode, ip.Child("mode"))
		// A file shows a field of the pod or a resource of a container.
		if (items[i].FieldRef == nil) == (items[i].ResourceFieldRef == nil) {
			v.add(field.Required(ip, "one of fieldRef and resourceFieldRef"))
		}
		if r := items[i].ResourceFieldRef; r != nil {
			v.required(ip.Child("resourceFieldRef", "containerName"), r.ContainerName)
		}
	}
}

// inVolume checks the path of a file within a volume. Names that begin with ".." are
// reserved for the links of the atomic writer, by which all files change at once.
func (v *podValidator) inVolume(file string, p *field.Path) {
	switch {
	case file == "":
		v.add(field.Required(p, ""))
	case path.IsAbs(file) || slices.Contains(strings.Split(file, "/"), "..") || strings.HasPrefix(file, ".."):
		v.add(field.Invalid(p, file, "must be a relative path without '..'"))
	}
}

// projected checks that no file of a volume has two sources. Only files with an explicit
// path are compared: the keys of a whole ConfigMap are not known here.
func (v *podValidator) projected(pr *v1.ProjectedVolumeSource, p *field.Path) {
	taken := map[string]bool{}
	take := func(file string, at *field.Path) {
		if file != "" && taken[file] {
			v.add(field.Duplicate(at, file))
		}
		taken[file] = true
	}
	for i := range pr.Sources {
		s, sp := &pr.Sources[i], p.Child("sources").Index(i)
		if c := s.ConfigMap; c != nil {
			v.files(c.Items, nil, sp.Child("configMap"))
			for j := range c.Items {
				take(c.Items[j].Path, sp.Child("configMap", "items").Index(j).Child("path"))
			}
		}
		if c := s.Secret; c != nil {
			v.files(c.Items, nil, sp.Child("secret"))
			for j := range c.Items {
				take(c.Items[j].Path, sp.Child("secret", "items").Index(j).Child("path"))
			}
		}
		if d := s.DownwardAPI; d != nil {
			v.shown(d.Items, sp.Child("downwardAPI"))
			for j := range d.Items {
				take(d.Items[j].Path, sp.Child("downwardAPI", "items").Index(j).Child("path"))
			}
		}
	}
}

// driver checks the name of a CSI driver, which is in the form of a domain name.
func (v *podValidator) driver(name string, p *field.Path) {
	v.required(p, name)
	if len(name) > maxDriverName {
		v.add(field.TooLong(p, "", maxDriverName))
	} else if name != "" {
		v.says(p, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
	}
}

// iscsi checks the fields that reach the initiator's commands
// and records, and need a strict form for that reason.
func (v *podValidator) iscsi(i *v1.ISCSIVolumeSource, p *field.Path) {
	v.required(p.Child("targetPortal"), i.TargetPortal)
	if !iscsiName.MatchString(i.IQN) {
		v.add(field.Invalid(p.Child("iqn"), i.IQN, "must be the name of a target, as iqn.YYYY-MM.DOMAIN:NAME, eui.NUMBER or naa.NUMBER"))
	}
	if i.Lun < 0 || i.Lun > maxLUN {
		v.add(field.Invalid(p.Child("lun"), i.Lun, fmt.Sprintf("must be 0 to %d", maxLUN)))
	}
	// The secret has the passwords of CHAP.
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil {
		v.add(field.Required(p.Child("secretRef"), "with chapAuthDiscovery or chapAuthSession"))
	}
	if i.InitiatorName != nil && !iscsiName.MatchString(*i.InitiatorName) {
		v.add(field.Invalid(p.Child("initiatorName"), *i.InitiatorName, "must be a name as that of a target"))
	}
}
