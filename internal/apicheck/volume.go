package apicheck

import (
	"maps"
	"path"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Volume checks the spec of a PersistentVolume.
func Volume(name string, s *v1.PersistentVolumeSpec, p *field.Path) (errs field.ErrorList) {
	errs = append(accessModes(s.AccessModes, p.Child("accessModes")), Sources(name, s.PersistentVolumeSource, p)...)
	if _, ok := s.Capacity[v1.ResourceStorage]; !ok || len(s.Capacity) > 1 {
		errs = append(errs, field.Required(p.Child("capacity"), "storage, and nothing else"))
	}
	for _, res := range slices.Sorted(maps.Keys(s.Capacity)) {
		errs = append(errs, positive(s.Capacity, res, p.Child("capacity"))...)
	}
	affinity := p.Child("nodeAffinity")
	switch {
	case s.NodeAffinity != nil && s.NodeAffinity.Required == nil:
		errs = append(errs, field.Required(affinity.Child("required"), ""))
	case s.NodeAffinity != nil:
		errs = append(errs, NodeSelector(s.NodeAffinity.Required, affinity.Child("required"))...)
	case s.Local != nil:
		errs = append(errs, field.Required(affinity, "a local volume is on one node"))
	}
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(p.Child("persistentVolumeReclaimPolicy"), "Recycle would empty the whole host"))
	}
	errs = append(errs, class(s.StorageClassName, p.Child("storageClassName"))...)
	if c := s.VolumeAttributesClassName; c != nil {
		if *c == "" {
			errs = append(errs, field.Required(p.Child("volumeAttributesClassName"), ""))
		}
		if s.CSI == nil {
			errs = append(errs, field.Required(p.Child("csi"), "with volumeAttributesClassName"))
		}
		errs = append(errs, class(*c, p.Child("volumeAttributesClassName"))...)
	}
	return errs
}

// Claim checks the spec of a PersistentVolumeClaim or of a claim template.
func Claim(s *v1.PersistentVolumeClaimSpec, p *field.Path) (errs field.ErrorList) {
	errs = accessModes(s.AccessModes, p.Child("accessModes"))
	if s.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector, metavalidation.LabelSelectorValidationOptions{}, p.Child("selector"))...)
	}
	if _, ok := s.Resources.Requests[v1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(p.Child("resources").Key("storage"), ""))
	} else {
		errs = append(errs, positive(s.Resources.Requests, v1.ResourceStorage, p.Child("resources"))...)
	}
	for _, c := range []struct {
		name  string
		value *string
	}{{"storageClassName", s.StorageClassName}, {"volumeAttributesClassName", s.VolumeAttributesClassName}} {
		if c.value != nil {
			errs = append(errs, class(*c.value, p.Child(c.name))...)
		}
	}
	local := v1.TypedObjectReference{}
	if d := s.DataSource; d != nil {
		local = v1.TypedObjectReference{APIGroup: d.APIGroup, Kind: d.Kind, Name: d.Name}
		errs = append(errs, data(&local, p.Child("dataSource"))...)
	}
	if d := s.DataSourceRef; d != nil {
		errs = append(errs, data(d, p.Child("dataSourceRef"))...)
		switch {
		case s.DataSource == nil:
		case d.Namespace != nil && *d.Namespace != "":
			errs = append(errs, field.Invalid(p.Child("dataSource"), local.Name, "must not be set together with dataSourceRef.namespace"))
		case !reflect.DeepEqual(local.APIGroup, d.APIGroup) || local.Kind != d.Kind || local.Name != d.Name:
			errs = append(errs, field.Invalid(p.Child("dataSource"), local.Name, "must name the same object as dataSourceRef"))
		}
	}
	return errs
}

// data checks a claim's dataSource or dataSourceRef.
func data(d *v1.TypedObjectReference, p *field.Path) (errs field.ErrorList) {
	for _, f := range [][2]string{{"name", d.Name}, {"kind", d.Kind}} {
		if f[1] == "" {
			errs = append(errs, field.Required(p.Child(f[0]), ""))
		}
	}
	if d.APIGroup == nil || *d.APIGroup == "" {
		if d.Kind != "PersistentVolumeClaim" {
			errs = append(errs, field.Invalid(p.Child("kind"), d.Kind, "must be PersistentVolumeClaim without apiGroup"))
		}
	} else {
		for _, m := range validation.IsDNS1123Subdomain(*d.APIGroup) {
			errs = append(errs, field.Invalid(p.Child("apiGroup"), *d.APIGroup, m))
		}
	}
	if n := d.Namespace; n != nil && *n != "" {
		for _, m := range validation.IsDNS1123Label(*n) {
			errs = append(errs, field.Invalid(p.Child("namespace"), *n, m))
		}
	}
	return errs
}

func accessModes(modes []v1.PersistentVolumeAccessMode, p *field.Path) (errs field.ErrorList) {
	if len(modes) == 0 {
		errs = append(errs, field.Required(p, "at least one"))
	}
	if slices.Contains(modes, v1.ReadWriteOncePod) && slices.ContainsFunc(modes, func(m v1.PersistentVolumeAccessMode) bool { return m != v1.ReadWriteOncePod }) {
		errs = append(errs, field.Forbidden(p, "ReadWriteOncePod must be the only access mode"))
	}
	return errs
}

// positive checks that the quantity of the resource res is greater than 0.
func positive(list v1.ResourceList, res v1.ResourceName, p *field.Path) field.ErrorList {
	if q := list[res]; q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(p.Key(string(res)), q.String(), "must be greater than 0")}
	}
	return nil
}

// class checks the name of a storage class or of a volume attributes class. The name "" is valid: it
// means no class.
func class(name string, p *field.Path) (errs field.ErrorList) {
	if name == "" {
		return nil
	}
	for _, m := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(p, name, m))
	}
	return errs
}
