package fit

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// goodPod is a pod that every node takes.
func goodPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
	}
}

// A pod from any source that would escape its directory, or has unknown values, is rejected
// before anything is created for it.
func TestInvalidPodIsRejected(t *testing.T) {
	node := &Node{}
	if r := node.Admit(goodPod(), nil); r != nil {
		t.Fatalf("a good pod: %+v", r)
	}
	strict := v1.SupplementalGroupsPolicy("strict")
	for at, spoil := range map[string]func(*v1.Pod){
		"metadata.uid":                                  func(p *v1.Pod) { p.UID = "../../escaped" },
		"metadata.namespace":                            func(p *v1.Pod) { p.Namespace = ".." },
		"metadata.name":                                 func(p *v1.Pod) { p.Name = "../x" },
		"spec.containers[0].name":                       func(p *v1.Pod) { p.Spec.Containers[0].Name = "../x" },
		"spec.volumes[0].name":                          func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: ".."}} },
		"spec.restartPolicy":                            func(p *v1.Pod) { p.Spec.RestartPolicy = "Sometimes" },
		"spec.securityContext.supplementalGroupsPolicy": func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict} },
		"spec.containers[0].securityContext.seccompProfile.type": func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: "runtime/default"}}
		},
	} {
		p := goodPod()
		spoil(p)
		r := node.Admit(p, nil)
		if r == nil || r.Reason != "InvalidPod" || !r.Final || !strings.HasPrefix(r.Message, at+": ") || len(r.Message) > 1000 {
			t.Errorf("%s: %+v", at, r)
		}
	}
}

func TestRejectionOfManyMistakesIsShort(t *testing.T) {
	p := goodPod()
	p.UID = types.UID(strings.Repeat("/", 1<<20))
	for range 1000 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: strings.Repeat("/", 1<<10)})
	}
	if r := (&Node{}).Admit(p, nil); r == nil || len(r.Message) > 4000 || !strings.HasSuffix(r.Message, " more") {
		t.Errorf("%+v", r)
	}
}
