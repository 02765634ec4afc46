package apicheck

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxDriverName = 63  // CSI specification, GetPluginInfo
	maxPartition  = 255 // the API's documentation of gcePersistentDisk
	maxLUN        = 255 // the API's documentation of iscsi
	// maxInitiator limits the name of an iSCSI initiator's interface, in bytes. The name is the
	// volume's name, a colon and the target portal.
	maxInitiator = 64
)

// required maps each source type to the JSON names of its required fields. If the source types of
// pods and of PersistentVolumes differ only in their secret references, their lists are the same.
var required = map[reflect.Type][]string{
	of[v1.AWSElasticBlockStoreVolumeSource]():  {"volumeID"},
	of[v1.AzureDiskVolumeSource]():             {"diskName", "diskURI"},
	of[v1.AzureFilePersistentVolumeSource]():   {"secretName", "shareName"},
	of[v1.AzureFileVolumeSource]():             {"secretName", "shareName"},
	of[v1.CSIPersistentVolumeSource]():         {"driver", "volumeHandle"},
	of[v1.CSIVolumeSource]():                   {"driver"},
	of[v1.CephFSPersistentVolumeSource]():      {"monitors"},
	of[v1.CephFSVolumeSource]():                {"monitors"},
	of[v1.CinderPersistentVolumeSource]():      {"volumeID"},
	of[v1.CinderVolumeSource]():                {"volumeID"},
	of[v1.ConfigMapVolumeSource]():             {"name"},
	of[v1.EphemeralVolumeSource]():             {"volumeClaimTemplate"},
	of[v1.FlexPersistentVolumeSource]():        {"driver"},
	of[v1.FlexVolumeSource]():                  {"driver"},
	of[v1.GCEPersistentDiskVolumeSource]():     {"pdName"},
	of[v1.GitRepoVolumeSource]():               {"repository"},
	of[v1.GlusterfsPersistentVolumeSource]():   {"endpoints", "path"},
	of[v1.GlusterfsVolumeSource]():             {"endpoints", "path"},
	of[v1.HostPathVolumeSource]():              {"path"},
	of[v1.ISCSIPersistentVolumeSource]():       {"targetPortal", "iqn"},
	of[v1.ISCSIVolumeSource]():                 {"targetPortal", "iqn"},
	of[v1.ImageVolumeSource]():                 {"reference"},
	of[v1.LocalVolumeSource]():                 {"path"},
	of[v1.NFSVolumeSource]():                   {"server", "path"},
	of[v1.PersistentVolumeClaimVolumeSource](): {"claimName"},
	of[v1.PhotonPersistentDiskVolumeSource]():  {"pdID"},
	of[v1.PortworxVolumeSource]():              {"volumeID"},
	of[v1.QuobyteVolumeSource]():               {"registry", "volume"},
	of[v1.RBDPersistentVolumeSource]():         {"monitors", "image"},
	of[v1.RBDVolumeSource]():                   {"monitors", "image"},
	of[v1.ScaleIOPersistentVolumeSource]():     {"gateway", "system", "volumeName"},
	of[v1.ScaleIOVolumeSource]():               {"gateway", "system", "volumeName"},
	of[v1.SecretVolumeSource]():                {"secretName"},
	of[v1.StorageOSPersistentVolumeSource]():   {"volumeName"},
	of[v1.StorageOSVolumeSource]():             {"volumeName"},
	of[v1.VsphereVirtualDiskVolumeSource]():    {"volumePath"},
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

// Sources checks the source of a volume. sources is a VolumeSource or a PersistentVolumeSource,
// whose fields are all pointers. name is the name of the volume.
func Sources(name string, sources any, p *field.Path) (errs field.ErrorList) {
	n := 0
	for f, v := range reflect.ValueOf(sources).Fields() {
		if v.IsNil() {
			continue
		}
		n++
		sp := p.Child(jsonName(f))
		v = v.Elem()
		for _, want := range required[v.Type()] {
			if fieldOf(v, want).IsZero() || fieldOf(v, want).Kind() == reflect.Slice && fieldOf(v, want).Len() == 0 {
				errs = append(errs, field.Required(sp.Child(want), ""))
			}
		}
		errs = append(errs, source(name, v.Addr().Interface(), sp)...)
	}
	if n != 1 {
		errs = append(errs, field.Forbidden(p, fmt.Sprintf("has %d sources; want one, such as local or nfs", n)))
	}
	return errs
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// fieldOf returns the field of a struct, or of a struct that it embeds, by the field's JSON name.
// It returns an invalid Value if there is no such field.
func fieldOf(v reflect.Value, name string) reflect.Value {
	for f, x := range v.Fields() {
		if jsonName(f) == name {
			return x
		}
		if f.Anonymous && x.Kind() == reflect.Struct {
			if x = fieldOf(x, name); x.IsValid() {
				return x
			}
		}
	}
	return reflect.Value{}
}

// source checks the rules of a source beyond its required fields.
func source(name string, source any, p *field.Path) (errs field.ErrorList) {
	add := func(e *field.Error) { errs = append(errs, e) }
	between := func(name string, n, most int64) {
		if n < 0 || n > most {
			add(field.Invalid(p.Child(name), n, validation.InclusiveRangeError(0, int(most))))
		}
	}
	says := func(name, value string, check func(string) []string) {
		for _, m := range check(value) {
			add(field.Invalid(p.Child(name), value, m))
		}
	}
	switch s := source.(type) {
	case *v1.GCEPersistentDiskVolumeSource:
		between("partition", int64(s.Partition), maxPartition)
	case *v1.AWSElasticBlockStoreVolumeSource:
		between("partition", int64(s.Partition), maxPartition)
	case *v1.HostPathVolumeSource:
		errs = append(errs, absolute(s.Path, p.Child("path"))...)
	case *v1.LocalVolumeSource:
		errs = append(errs, absolute(s.Path, p.Child("path"))...)
	case *v1.NFSVolumeSource:
		if !path.IsAbs(s.Path) {
			add(field.Invalid(p.Child("path"), s.Path, "must be an absolute path"))
		}
	case *v1.GitRepoVolumeSource:
		if path.IsAbs(s.Directory) || slices.Contains(strings.Split(s.Directory, "/"), "..") {
			add(field.Invalid(p.Child("directory"), s.Directory, "must be a relative path without '..'"))
		}
	case *v1.QuobyteVolumeSource:
		for server := range strings.SplitSeq(s.Registry, ",") {
			if strings.Count(server, ":") != 1 {
				add(field.Invalid(p.Child("registry"), s.Registry, "must be HOST:PORT, or several of them separated by commas"))
			}
		}
		if len(s.Tenant) > 64 {
			add(field.TooLong(p.Child("tenant"), "", 64))
		}
	case *v1.FlockerVolumeSource:
		if (s.DatasetName == "") == (s.DatasetUUID == "") {
			add(field.Required(p, "one of datasetName and datasetUUID"))
		}
		if strings.Contains(s.DatasetName, "/") {
			add(field.Invalid(p.Child("datasetName"), s.DatasetName, "must not contain '/'"))
		}
	case *v1.FCVolumeSource:
		if (len(s.TargetWWNs) == 0) == (len(s.WWIDs) == 0) {
			add(field.Required(p.Child("targetWWNs"), "one of targetWWNs and wwids"))
		}
		if len(s.TargetWWNs) > 0 && s.Lun == nil {
			add(field.Required(p.Child("lun"), "with targetWWNs"))
		} else if len(s.TargetWWNs) > 0 {
			between("lun", int64(*s.Lun), maxLUN)
		}
	case *v1.ISCSIVolumeSource:
		errs = append(errs, iscsi(name, s, s.SecretRef != nil, p)...)
	case *v1.ISCSIPersistentVolumeSource:
		errs = append(errs, iscsi(name, &v1.ISCSIVolumeSource{
			TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth, InitiatorName: s.InitiatorName,
		}, s.SecretRef != nil, p)...)
		if s.SecretRef != nil && s.SecretRef.Name == "" {
			add(field.Required(p.Child("secretRef", "name"), ""))
		}
	case *v1.FlexVolumeSource:
		errs = append(errs, options(s.Options, p.Child("options"))...)
	case *v1.FlexPersistentVolumeSource:
		errs = append(errs, options(s.Options, p.Child("options"))...)
	case *v1.AzureFilePersistentVolumeSource:
		if s.SecretNamespace != nil && *s.SecretNamespace == "" {
			add(field.Required(p.Child("secretNamespace"), ""))
		}
	case *v1.AzureDiskVolumeSource:
		if want := "/subscriptions/"; s.Kind != nil && *s.Kind == v1.AzureManagedDisk && !strings.HasPrefix(s.DataDiskURI, want) {
			add(field.Invalid(p.Child("diskURI"), s.DataDiskURI, "must begin with "+want+" with kind Managed"))
		}
		if want := "https://"; s.Kind != nil && *s.Kind != v1.AzureManagedDisk && !strings.HasPrefix(s.DataDiskURI, want) {
			add(field.Invalid(p.Child("diskURI"), s.DataDiskURI, "must begin with "+want+" with kind "+string(*s.Kind)))
		}
	case *v1.CinderVolumeSource:
		errs = append(errs, secretName(s.SecretRef, p.Child("secretRef"))...)
	case *v1.CinderPersistentVolumeSource:
		errs = append(errs, secret(s.SecretRef, false, p.Child("secretRef"))...)
	case *v1.StorageOSVolumeSource:
		errs = append(errs, storageOS(s.VolumeName, s.VolumeNamespace, p)...)
		errs = append(errs, secretName(s.SecretRef, p.Child("secretRef"))...)
	case *v1.StorageOSPersistentVolumeSource:
		errs = append(errs, storageOS(s.VolumeName, s.VolumeNamespace, p)...)
		if r := s.SecretRef; r != nil {
			errs = append(errs, secret(&v1.SecretReference{Name: r.Name, Namespace: r.Namespace}, false, p.Child("secretRef"))...)
		}
	case *v1.GlusterfsPersistentVolumeSource:
		if n := s.EndpointsNamespace; n != nil && *n == "" {
			add(field.Invalid(p.Child("endpointsNamespace"), *n, "must not be empty"))
		}
	case *v1.CSIVolumeSource:
		errs = append(errs, DriverName(s.Driver, p.Child("driver"))...)
		if r := s.NodePublishSecretRef; r != nil {
			errs = append(errs, secretName(r, p.Child("nodePublishSecretRef"))...)
			if r.Name != "" {
				says("nodePublishSecretRef", r.Name, validation.IsDNS1123Subdomain)
			}
		}
	case *v1.CSIPersistentVolumeSource:
		errs = append(errs, DriverName(s.Driver, p.Child("driver"))...)
		for name, ref := range map[string]*v1.SecretReference{
			"controllerPublishSecretRef": s.ControllerPublishSecretRef, "controllerExpandSecretRef": s.ControllerExpandSecretRef,
			"nodePublishSecretRef": s.NodePublishSecretRef, "nodeExpandSecretRef": s.NodeExpandSecretRef,
		} {
			errs = append(errs, secret(ref, true, p.Child(name))...)
		}
	}
	return errs
}

// absolute checks a host path.
func absolute(file string, p *field.Path) field.ErrorList {
	if file != "" && (!path.IsAbs(file) || slices.Contains(strings.Split(file, "/"), "..")) {
		return field.ErrorList{field.Invalid(p, file, "must be an absolute path without '..'")}
	}
	return nil
}

// secretName checks a reference to a secret in the namespace of the referring object.
func secretName(r *v1.LocalObjectReference, p *field.Path) field.ErrorList {
	if r != nil && r.Name == "" {
		return field.ErrorList{field.Required(p.Child("name"), "")}
	}
	return nil
}

// secret checks a reference to a secret in any namespace. If form is true, it also checks the
// form of the names.
func secret(r *v1.SecretReference, form bool, p *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	for _, f := range []struct {
		name, value string
		check       func(string) []string
	}{{"name", r.Name, validation.IsDNS1123Subdomain}, {"namespace", r.Namespace, validation.IsDNS1123Label}} {
		if f.value == "" {
			errs = append(errs, field.Required(p.Child(f.name), ""))
			continue
		}
		for _, m := range f.check(f.value) {
			if form {
				errs = append(errs, field.Invalid(p.Child(f.name), f.value, m))
			}
		}
	}
	return errs
}

func storageOS(name, namespace string, p *field.Path) (errs field.ErrorList) {
	for _, f := range [][2]string{{"volumeName", name}, {"volumeNamespace", namespace}} {
		if f[1] == "" {
			continue
		}
		for _, m := range validation.IsDNS1123Label(f[1]) {
			errs = append(errs, field.Invalid(p.Child(f[0]), f[1], m))
		}
	}
	return errs
}

// options checks the options of a FlexVolume: names in the domain of Kubernetes are reserved.
func options(list map[string]string, p *field.Path) (errs field.ErrorList) {
	for name := range list {
		prefix, _, _ := strings.Cut(name, "/")
		if prefix = "." + strings.ToLower(prefix); strings.HasSuffix(prefix, ".kubernetes.io") || strings.HasSuffix(prefix, ".k8s.io") {
			errs = append(errs, field.Invalid(p.Key(name), name, "kubernetes.io and k8s.io are reserved"))
		}
	}
	return errs
}

// DriverName checks the name of a CSI or DRA driver, which has the form of a domain name.
func DriverName(name string, p *field.Path) (errs field.ErrorList) {
	if len(name) > maxDriverName {
		return field.ErrorList{field.TooLong(p, "", maxDriverName)}
	}
	if name == "" { // reported as missing elsewhere
		return nil
	}
	for _, m := range validation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, field.Invalid(p, name, m))
	}
	return errs
}

// iscsiName matches the name of an iSCSI target (RFC 3720, 3.2.6.3).
var iscsiName = regexp.MustCompile(`^(iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)?|eui\.[[:alnum:]]{16}|naa\.[[:alnum:]]{32})$`)

// iscsi checks an iSCSI source. Its fields become part of the initiator's commands and records, so
// only the exact form is allowed.
func iscsi(name string, i *v1.ISCSIVolumeSource, secret bool, p *field.Path) (errs field.ErrorList) {
	add := func(e *field.Error) { errs = append(errs, e) }
	if i.IQN != "" && !iscsiName.MatchString(i.IQN) {
		add(field.Invalid(p.Child("iqn"), i.IQN, "must have the form iqn.YYYY-MM.DOMAIN:NAME, eui.NUMBER or naa.NUMBER"))
	}
	if i.Lun < 0 || i.Lun > maxLUN {
		add(field.Invalid(p.Child("lun"), i.Lun, validation.InclusiveRangeError(0, maxLUN)))
	}
	// The secret has the CHAP passwords.
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && !secret {
		add(field.Required(p.Child("secretRef"), "with chapAuthDiscovery or chapAuthSession"))
	}
	if i.InitiatorName == nil {
		return errs
	}
	if !iscsiName.MatchString(*i.InitiatorName) {
		add(field.Invalid(p.Child("initiatorName"), *i.InitiatorName, "must have the form iqn.YYYY-MM.DOMAIN:NAME, eui.NUMBER or naa.NUMBER"))
	}
	if len(name)+len(":")+len(i.TargetPortal) > maxInitiator {
		add(field.Invalid(p.Child("targetPortal"), i.TargetPortal, fmt.Sprintf("must have at most %d bytes together with the volume's name if initiatorName is set", maxInitiator-1)))
	}
	return errs
}
