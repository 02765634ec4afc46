package agenttest

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod returns a pod in the namespace default with these containers, restart policy Always and a
// grace period of 10 s. Its UID is derived from its name: another pod of the same name needs its
// own UID.
func Pod(name string, containers ...v1.Container) *v1.Pod {
	grace := int64(10)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceDefault, Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault, Containers: containers,
		},
	}
}

// Container returns a container of Image that runs these steps in the runtime in memory, for
// example "sleep", "5s", "exit", "1". If there are no steps, the container runs until it is
// stopped.
func Container(name string, steps ...string) v1.Container {
	if len(steps) == 0 {
		steps = []string{"sleep", "forever"}
	}
	return v1.Container{Name: name, Image: Image, ImagePullPolicy: v1.PullIfNotPresent, Args: steps}
}
