package podcheck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// jsonName returns the JSON name of a field. It returns "" for an inlined field.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Fields of the pod that files of volumes and environment variables can have as their
// value (the downward API).
var (
	shownByFiles     = []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}
	shownByVariables = append(slices.Clone(shownByFiles), "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
)

// fieldRef checks a reference to a field of the pod. shown are the allowed fields, in addition to
// single labels and annotations.
func (v *checker) fieldRef(p *field.Path, ref *v1.ObjectFieldSelector, shown []string) {
	if ref == nil || v.full() {
		return
	}
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		v.add(field.NotSupported(p.Child("apiVersion"), clip(ref.APIVersion), []string{"v1"}))
	}
	p = p.Child("fieldPath")
	if slices.Contains(shown, ref.FieldPath) {
		return
	}
	for _, of := range []string{"metadata.labels", "metadata.annotations"} {
		key, ok := strings.CutPrefix(ref.FieldPath, of+"['")
		if !ok {
			continue
		}
		if key, ok = strings.CutSuffix(key, "']"); !ok {
			break
		}
		if of == "metadata.annotations" {
			key = strings.ToLower(key)
		}
		v.says(p, ref.FieldPath, validation.IsQualifiedName(key))
		return
	}
	allowed := append(slices.Clone(shown), "metadata.labels['KEY']", "metadata.annotations['KEY']")
	v.add(field.NotSupported(p, clip(ref.FieldPath), allowed))
}

// resourceRef checks a reference to a request or a limit of a container.
func (v *checker) resourceRef(p *field.Path, ref *v1.ResourceFieldSelector) {
	if ref == nil || v.full() {
		return
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	if kind != "limits" && kind != "requests" ||
		!slices.Contains([]string{"cpu", "memory", "ephemeral-storage"}, name) && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
		v.add(field.NotSupported(p.Child("resource"), clip(ref.Resource), []string{
			"limits.cpu", "limits.memory", "limits.ephemeral-storage", "limits.hugepages-SIZE",
			"requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.hugepages-SIZE",
		}))
	}
	if d := ref.Divisor.String(); !ref.Divisor.IsZero() && !slices.Contains(divisors[name == "cpu"], d) {
		v.add(field.NotSupported(p.Child("divisor"), clip(d), divisors[name == "cpu"]))
	}
}

// divisors lists the valid divisors (the API's documentation of divisor): with the key true for
// CPUs, with the key false for bytes.
var divisors = map[bool][]string{
	true:  {"1m", "1"},
	false: {"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"},
}

// keyTypes lists the valid key types of pod certificates (KEP-4317).
var keyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

func (v *checker) volume(vol *v1.Volume, p *field.Path) {
	files := func(p *field.Path, items []v1.DownwardAPIVolumeFile) {
		for i := range items {
			ip := p.Child("items").Index(i)
			v.fieldRef(ip.Child("fieldRef"), items[i].FieldRef, shownByFiles)
			v.resourceRef(ip.Child("resourceFieldRef"), items[i].ResourceFieldRef)
		}
	}
	if d := vol.DownwardAPI; d != nil {
		files(p.Child("downwardAPI"), d.Items)
	}
	if vol.Projected == nil {
		return
	}
	for i := range vol.Projected.Sources {
		if v.full() {
			return
		}
		src, sp := &vol.Projected.Sources[i], p.Child("projected", "sources").Index(i)
		if src.DownwardAPI != nil {
			files(sp.Child("downwardAPI"), src.DownwardAPI.Items)
		}
		if c := src.PodCertificate; c != nil && !slices.Contains(keyTypes, c.KeyType) {
			v.add(field.NotSupported(sp.Child("podCertificate", "keyType"), clip(c.KeyType), keyTypes))
		}
	}
}

func (v *checker) mount(m *v1.VolumeMount, p *field.Path) {
	mode := m.RecursiveReadOnly
	if mode == nil || *mode == v1.RecursiveReadOnlyDisabled {
		return
	}
	p = p.Child("recursiveReadOnly")
	if !m.ReadOnly {
		v.add(field.Forbidden(p, fmt.Sprintf("%s needs readOnly: true", clip(string(*mode)))))
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		v.add(field.Forbidden(p, fmt.Sprintf("%s needs mountPropagation: None", clip(string(*mode)))))
	}
}

// maxAnnotations is the maximum size of all keys and values of a pod's annotations in bytes (the
// API's documentation of annotations).
const maxAnnotations = 256 << 10

func (v *checker) metadata() {
	size := 0
	for k, value := range v.pod.Annotations {
		size += len(k) + len(value)
	}
	if size > maxAnnotations {
		v.add(field.TooLong(field.NewPath("metadata", "annotations"), "", maxAnnotations))
	}
}

func (v *checker) spec() {
	spec := field.NewPath("spec")
	if sc := v.pod.Spec.SecurityContext; sc != nil {
		v.podSecurity(sc, spec.Child("securityContext"))
	}
	for i := range v.pod.Spec.Volumes {
		if v.full() {
			return
		}
		v.volume(&v.pod.Spec.Volumes[i], spec.Child("volumes").Index(i))
	}
	byName := map[string]*v1.Container{}
	for c, p := range v.containers {
		if v.full() {
			return
		}
		v.container(c, p)
		byName[c.Name] = c
	}
	v.appArmorAnnotations(byName)
}

func (v *checker) container(c *v1.Container, p *field.Path) {
	for i := range c.Env {
		if v.full() {
			return
		}
		if from := c.Env[i].ValueFrom; from != nil {
			ep := p.Child("env").Index(i).Child("valueFrom")
			v.fieldRef(ep.Child("fieldRef"), from.FieldRef, shownByVariables)
			v.resourceRef(ep.Child("resourceFieldRef"), from.ResourceFieldRef)
		}
	}
	for i := range c.VolumeMounts {
		if v.full() {
			return
		}
		v.mount(&c.VolumeMounts[i], p.Child("volumeMounts").Index(i))
	}
	if c.SecurityContext != nil {
		v.security(c.SecurityContext, p.Child("securityContext"))
	}
}
