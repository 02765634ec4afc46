package fit

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

func TestTaints(t *testing.T) {
	maintenance := v1.Taint{Key: "maintenance", Value: "disk", Effect: v1.TaintEffectNoExecute}
	seconds := int64(300)
	for name, c := range map[string]struct {
		taints      []v1.Taint
		tolerations []v1.Toleration
		static      bool
		want        bool
	}{
		"none":                      {nil, nil, false, true},
		"for schedulers":            {[]v1.Taint{{Key: "a", Effect: v1.TaintEffectNoSchedule}, {Key: "b", Effect: v1.TaintEffectPreferNoSchedule}}, nil, false, true},
		"not tolerated":             {[]v1.Taint{maintenance}, nil, false, false},
		"not tolerated by static":   {[]v1.Taint{maintenance}, nil, true, true},
		"tolerated":                 {[]v1.Taint{maintenance}, []v1.Toleration{{Key: "maintenance", Value: "disk"}}, false, true},
		"tolerated by name":         {[]v1.Taint{maintenance}, []v1.Toleration{{Key: "maintenance", Operator: v1.TolerationOpEqual, Value: "disk", Effect: v1.TaintEffectNoExecute}}, false, true},
		"tolerated for a time":      {[]v1.Taint{maintenance}, []v1.Toleration{{Key: "maintenance", Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}, false, true},
		"tolerated as all are":      {[]v1.Taint{maintenance}, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false, true},
		"another value":             {[]v1.Taint{maintenance}, []v1.Toleration{{Key: "maintenance", Value: "fan"}}, false, false},
		"another key":               {[]v1.Taint{maintenance}, []v1.Toleration{{Key: "other", Operator: v1.TolerationOpExists}}, false, false},
		"another effect":            {[]v1.Taint{maintenance}, []v1.Toleration{{Key: "maintenance", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}, false, false},
		"no key and the same value": {[]v1.Taint{maintenance}, []v1.Toleration{{Value: "disk"}}, false, false},
		"greater":                   {[]v1.Taint{{Key: "a", Value: "5", Effect: v1.TaintEffectNoExecute}}, []v1.Toleration{{Key: "a", Operator: v1.TolerationOpGt, Value: "1"}}, false, false},
		"one of two":                {[]v1.Taint{maintenance, {Key: "b", Effect: v1.TaintEffectNoExecute}}, []v1.Toleration{{Key: "maintenance", Operator: v1.TolerationOpExists}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := goodPod()
			p.Spec.Tolerations = c.tolerations
			p.Annotations = map[string]string{podmeta.AnnotationSource: podmeta.SourceAPI}
			if c.static {
				p.Annotations[podmeta.AnnotationSource] = "file"
			}
			node := &Node{Taints: func() []v1.Taint { return c.taints }}
			r := node.Admit(p, nil)
			if (r == nil) != c.want || r != nil && r.Reason != "TaintToleration" {
				t.Errorf("%+v, want it taken %t", r, c.want)
			}
		})
	}
}

func TestGroupsPolicy(t *testing.T) {
	strict, merge := v1.SupplementalGroupsPolicyStrict, v1.SupplementalGroupsPolicyMerge
	for _, c := range []struct {
		policy           *v1.SupplementalGroupsPolicy
		supported, known bool
		want             bool
	}{
		{nil, false, true, true}, {&merge, false, true, true}, {&strict, true, true, true},
		{&strict, false, true, false}, {&strict, false, false, true}, // else the sandbox's compiler says so
	} {
		p := goodPod()
		p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: c.policy}
		r := (&Node{GroupsPolicy: func() (bool, bool) { return c.supported, c.known }}).Admit(p, nil)
		if (r == nil) != c.want || r != nil && (r.Reason != "SupplementalGroupsPolicyNotSupported" || !r.Final) {
			t.Errorf("%+v: %+v", c, r)
		}
		if r := (&Node{}).Admit(p, nil); r != nil {
			t.Errorf("not asked: %+v", r)
		}
	}
}
