package agenttest

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a pod of the namespace default with those containers, which is restarted
// always and has 10 s to end. Its UID is made of its name: another pod of that name
// needs one of its own.
func Pod(name string, containers ...v1.Container) *v1.Pod {
	grace := int64(10)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceDefault, Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault, Containers: containers,
		},
	}
}

// Container is a container of Image that does those steps, as the runtime in memory
// understands them ("sleep", "5s", "exit", "1"); without any it runs until it is ended.
func Container(name string, steps ...string) v1.Container {
	if len(steps) == 0 {
		steps = []string{"sleep", "forever"}
	}
	return v1.Container{Name: name, Image: Image, ImagePullPolicy: v1.PullIfNotPresent, Args: steps}
}
