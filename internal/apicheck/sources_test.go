package apicheck

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A version of the API with a new source has to be decided on, and names are those of the
// types.
func TestEverySourceIsKnown(t *testing.T) {
	free := []reflect.Type{ // that may be empty, or need one of several fields
		of[v1.EmptyDirVolumeSource](), of[v1.DownwardAPIVolumeSource](), of[v1.ProjectedVolumeSource](), of[v1.FlockerVolumeSource](), of[v1.FCVolumeSource](),
	}
	found := map[reflect.Type]bool{}
	for _, sources := range []any{v1.VolumeSource{}, v1.PersistentVolumeSource{}} {
		for f := range reflect.ValueOf(sources).Fields() {
			typ := f.Type.Elem()
			found[typ] = true
			if names, ok := required[typ]; ok == slices.Contains(free, typ) {
				t.Errorf("%v: in the table of fields %t, among those without %t", typ, ok, !ok)
			} else {
				for _, name := range names {
					if !fieldOf(reflect.New(typ).Elem(), name).IsValid() {
						t.Errorf("%v has no field %s", typ, name)
					}
				}
			}
		}
	}
	for typ := range required {
		if !found[typ] {
			t.Errorf("%v is no source", typ)
		}
	}
}

// Each source says what it misses if it is empty.
func TestEmptySources(t *testing.T) {
	for _, sources := range []any{v1.VolumeSource{}, v1.PersistentVolumeSource{}} {
		for f := range reflect.ValueOf(sources).Fields() {
			one := reflect.New(reflect.TypeOf(sources)).Elem()
			one.FieldByIndex(f.Index).Set(reflect.New(f.Type.Elem()))
			errs := Sources("v", one.Interface(), field.NewPath("spec"))
			missing := 0
			for _, e := range errs {
				if !strings.HasPrefix(e.Field, "spec."+jsonName(f)) {
					t.Errorf("%s: %v", f.Name, e)
				}
				if e.Type == field.ErrorTypeRequired {
					missing++
				}
			}
			if want := len(required[f.Type.Elem()]); missing < want {
				t.Errorf("%s: %v, want %d fields that are missing", f.Name, errs, want)
			}
		}
	}
}

func TestVolume(t *testing.T) {
	good := func() *v1.PersistentVolumeSpec {
		return &v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}},
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*v1.PersistentVolumeSpec)
		want   string
	}{
		{"good", func(*v1.PersistentVolumeSpec) {}, ""},
		{"no source", func(s *v1.PersistentVolumeSpec) { s.HostPath = nil }, "has 0 sources"},
		{"a way up", func(s *v1.PersistentVolumeSpec) { s.HostPath.Path = "/data/../etc" }, "spec.hostPath.path"},
		{"less than nothing", func(s *v1.PersistentVolumeSpec) { s.Capacity[v1.ResourceStorage] = resource.MustParse("-1Gi") }, "spec.capacity[storage]"},
		{"more than storage", func(s *v1.PersistentVolumeSpec) { s.Capacity[v1.ResourceCPU] = resource.MustParse("1") }, "spec.capacity"},
		{"no access mode", func(s *v1.PersistentVolumeSpec) { s.AccessModes = nil }, "spec.accessModes"},
		{"one pod and others", func(s *v1.PersistentVolumeSpec) { s.AccessModes = append(s.AccessModes, v1.ReadWriteOncePod) }, "spec.accessModes"},
		{"local on every node", func(s *v1.PersistentVolumeSpec) {
			s.HostPath, s.Local = nil, &v1.LocalVolumeSource{Path: "/data"}
		}, "spec.nodeAffinity"},
		{"recycles the host", func(s *v1.PersistentVolumeSpec) {
			s.HostPath.Path, s.PersistentVolumeReclaimPolicy = "/", v1.PersistentVolumeReclaimRecycle
		}, "spec.persistentVolumeReclaimPolicy"},
	} {
		s := good()
		tc.change(s)
		errs := Volume("v", s, field.NewPath("spec"))
		if tc.want == "" != (len(errs) == 0) || tc.want != "" && !strings.Contains(errs.ToAggregate().Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, errs, tc.want)
		}
	}
}
