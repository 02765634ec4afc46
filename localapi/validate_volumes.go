package localapi

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/apicheck"
	"github.com/nodewright/nodewright/internal/podcheck"
)

// checkVolume checks a PersistentVolume. Its source cannot change, since pods may use it.
func checkVolume(v, old *v1.PersistentVolume, spec *field.Path) field.ErrorList {
	errs := append(podcheck.Words(&v.Spec, spec), apicheck.Volume(v.Name, &v.Spec, spec)...)
	if old == nil {
		return errs
	}
	is := v.Spec.PersistentVolumeSource.DeepCopy()
	if was := old.Spec.CSI; was != nil && was.ControllerExpandSecretRef == nil && is.CSI != nil {
		is.CSI.ControllerExpandSecretRef = nil // may be set once
	}
	if !equality.Semantic.DeepEqual(*is, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(spec.Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode, spec.Child("volumeMode"))...)
	if old.Spec.NodeAffinity != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(v.Spec.NodeAffinity, old.Spec.NodeAffinity, spec.Child("nodeAffinity"))...)
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// checkClaim checks a PersistentVolumeClaim. The volume's name may be set once. A bound claim may
// request more storage.
func checkClaim(c, old *v1.PersistentVolumeClaim, spec *field.Path) field.ErrorList {
	errs := append(podcheck.Words(&c.Spec, spec), apicheck.Claim(&c.Spec, spec)...)
	if old == nil {
		return errs
	}
	is, was := c.Spec.DeepCopy(), &old.Spec
	if was.VolumeName == "" {
		is.VolumeName = ""
	}
	class, annotated := old.Annotations[v1.BetaStorageClassAnnotation]
	named := was.StorageClassName == nil && is.StorageClassName != nil && (!annotated || *is.StorageClassName == class)
	if named { // with the class of the annotation, or if none was set
		is.StorageClassName = nil
	}
	if now, ok := c.Annotations[v1.BetaStorageClassAnnotation]; now != class && (ok || !named) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(v1.BetaStorageClassAnnotation), "field is immutable"))
	}
	if c.Status.Phase == v1.ClaimBound {
		if is.Resources.Requests != nil {
			is.Resources.Requests[v1.ResourceStorage] = was.Resources.Requests[v1.ResourceStorage]
		}
		is.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	storage := spec.Child("resources", "requests", "storage")
	size, before, has := c.Spec.Resources.Requests[v1.ResourceStorage], was.Resources.Requests[v1.ResourceStorage], old.Status.Capacity[v1.ResourceStorage]
	if size.Cmp(before) < 0 && size.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(storage, "field can not be less than status.capacity"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.Spec.VolumeMode, was.VolumeMode, spec.Child("volumeMode"))...)
	if name := c.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil && (name == nil || *name == "") {
		errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"), "must be there while status.currentVolumeAttributesClassName is"))
	}
	return errs
}
