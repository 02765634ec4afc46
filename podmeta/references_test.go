package podmeta_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// An object is named once, and is optional only if it is so wherever the pod names it.
func TestReferences(t *testing.T) {
	yes := true
	settings := v1.LocalObjectReference{Name: "settings"}
	pod := &v1.Pod{Spec: v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{{Name: "registry"}, {}},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: settings, Optional: &yes}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key", Optional: &yes}}},
			{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		},
		Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: settings}}}}},
	}}
	want := []podmeta.Reference{
		{Kind: "ConfigMap", Name: "settings"}, {Kind: "Secret", Name: "key", Optional: true},
		{Kind: "PersistentVolumeClaim", Name: "data"}, {Kind: "Secret", Name: "registry", Optional: true},
	}
	if got := podmeta.References(pod); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
