package fit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAppArmor(t *testing.T) {
	named, blank := "mine", " "
	field := func(kind v1.AppArmorProfileType, name *string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: kind, LocalhostProfile: name}
	}
	pod := func(p *v1.AppArmorProfile) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{AppArmorProfile: p}}}
	}
	inContainer := func(p *v1.AppArmorProfile) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}, {SecurityContext: &v1.SecurityContext{AppArmorProfile: p}}}}}
	}
	inInit := func(p *v1.AppArmorProfile) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{SecurityContext: &v1.SecurityContext{AppArmorProfile: p}}}}}
	}
	inEphemeral := func(p *v1.AppArmorProfile) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{EphemeralContainers: []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{SecurityContext: &v1.SecurityContext{AppArmorProfile: p}}}}}}
	}
	annotated := func(value string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": value}}}
	}
	for name, c := range map[string]struct {
		pod              *v1.Pod
		without, enabled bool // taken on a machine without AppArmor, and with it
	}{
		"nothing":              {&v1.Pod{}, true, true},
		"default":              {pod(field(v1.AppArmorProfileTypeRuntimeDefault, nil)), false, true},
		"unconfined":           {pod(field(v1.AppArmorProfileTypeUnconfined, nil)), true, true},
		"of the machine":       {inContainer(field(v1.AppArmorProfileTypeLocalhost, &named)), false, true},
		"of no name":           {inContainer(field(v1.AppArmorProfileTypeLocalhost, nil)), false, false},
		"of a blank name":      {inInit(field(v1.AppArmorProfileTypeLocalhost, &blank)), false, false},
		"of an init container": {inInit(field(v1.AppArmorProfileTypeRuntimeDefault, nil)), false, true},
		"while it runs":        {inEphemeral(field(v1.AppArmorProfileTypeRuntimeDefault, nil)), false, true},
		"annotated":            {annotated(v1.DeprecatedAppArmorBetaProfileRuntimeDefault), false, true},
		"annotated otherwise":  {annotated(v1.DeprecatedAppArmorBetaProfileNameUnconfined), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for enabled, want := range map[bool]bool{false: c.without, true: c.enabled} {
				p := &Node{AppArmor: func() bool { return enabled }}
				r := p.appArmor(c.pod, nil)
				if (r == nil) != want || r != nil && r.Reason != "AppArmor" {
					t.Errorf("AppArmor %v: %+v", enabled, r)
				}
			}
			if r := (&Node{}).appArmor(c.pod, nil); r != nil {
				t.Errorf("not asked: %+v", r)
			}
		})
	}
}
