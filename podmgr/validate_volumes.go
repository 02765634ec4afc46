package podmgr

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/apicheck"
)

// maxMode has the permission bits only: setuid and setgid are not allowed for files of a volume.
const maxMode = 0o777

// sources checks that a volume has exactly one valid source.
func (v *podValidator) sources(name string, vol *v1.VolumeSource, p *field.Path) {
	v.all(apicheck.Sources(name, *vol, p))
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
		for i := range pr.Sources {
			v.projection(&pr.Sources[i], p.Child("projected", "sources").Index(i))
		}
		v.projected(pr, p.Child("projected"))
	}
	if e := vol.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
		tp, t := p.Child("ephemeral", "volumeClaimTemplate"), e.VolumeClaimTemplate
		v.all(apicheck.Claim(&t.Spec, tp.Child("spec")))
		v.all(metavalidation.ValidateLabels(t.Labels, tp.Child("metadata", "labels")))
		v.annotations(t.Annotations, tp.Child("metadata", "annotations"))
		// A controller would make the claim, whose name and owner are its own.
		meta := t.ObjectMeta
		meta.Labels, meta.Annotations = nil, nil
		if !reflect.DeepEqual(meta, metav1.ObjectMeta{}) {
			v.add(field.Forbidden(tp.Child("metadata"), "may have only labels and annotations"))
		}
		v.says(p.Child("name"), name, validation.IsDNS1123Subdomain(v.pod.Name+"-"+name))
	}
	if e := vol.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		v.add(field.Forbidden(p.Child("emptyDir", "sizeLimit"), "must be 0 or more"))
	}
}

// required adds a mistake for a field without a value.
func (v *podValidator) required(p *field.Path, value string) {
	if value == "" {
		v.add(field.Required(p, ""))
	}
}

// mode checks the permission bits of files. If mode is nil, the default is used.
func (v *podValidator) mode(mode *int32, p *field.Path) {
	if mode != nil && (*mode < 0 || *mode > maxMode) {
		v.add(field.Invalid(p, *mode, fmt.Sprintf("must be 0 to %d (0777 octal)", maxMode)))
	}
}

// files checks the items of a ConfigMap or Secret volume.
func (v *podValidator) files(items []v1.KeyToPath, mode *int32, p *field.Path) {
	// For a projected volume mode is nil: the mode belongs to the whole volume.
	v.mode(mode, p.Child("defaultMode"))
	for i := range items {
		ip := p.Child("items").Index(i)
		v.required(ip.Child("key"), items[i].Key)
		v.inVolume(items[i].Path, ip.Child("path"))
		v.mode(items[i].Mode, ip.Child("mode"))
	}
}

// shown checks the items of a downward API volume.
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
