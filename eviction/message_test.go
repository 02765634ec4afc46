package eviction

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/eviction/rank"
)

// What users read, and what tools read of its events.
func TestMessages(t *testing.T) {
	const mi = 1 << 20
	memory := rank.Threshold{Signal: rank.SignalMemory, Value: rank.Amount{Value: 100 * mi, Format: resource.BinarySI}}
	disk := rank.Threshold{Signal: rank.SignalNodeFs, Value: rank.Amount{Fraction: 0.1}}
	inodes := rank.Threshold{Signal: rank.SignalNodeFsInodes, Value: rank.Amount{Fraction: 0.05}}
	pids := rank.Threshold{Signal: rank.SignalPIDs, Value: rank.Amount{Value: 1000}}
	seen := rank.Observation{Available: 50 * mi, Capacity: 1000 * mi}
	few := rank.Observation{Available: 40, Capacity: 1000}
	container := func(name, request string) v1.Container {
		c := v1.Container{Name: name}
		if request != "" {
			c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(request), v1.ResourceEphemeralStorage: resource.MustParse(request)}
		}
		return c
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{
		InitContainers:      []v1.Container{container("init", "5Mi")},
		Containers:          []v1.Container{container("a", "10Mi"), container("b", "")},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	sized := pod.DeepCopy()
	sized.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("30Mi")}}
	uses := func(name string, memory, rootfs, logs int64) rank.ContainerUsage {
		u := rank.ContainerUsage{Name: name, Memory: memory * mi}
		if rootfs >= 0 {
			u.Rootfs = &rank.Disk{Bytes: rootfs * mi}
		}
		if logs >= 0 {
			u.Logs = &rank.Disk{Bytes: logs * mi}
		}
		return u
	}
	all := func(list ...rank.ContainerUsage) *rank.Usage {
		u := &rank.Usage{Containers: list}
		for _, c := range list {
			u.Memory += c.Memory
		}
		return u
	}
	const lowMemory = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
	const lowDisk = "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 50Mi. "
	for _, tt := range []struct {
		name    string
		t       rank.Threshold
		seen    rank.Observation
		pod     *v1.Pod
		usage   *rank.Usage
		message string
		marks   map[string]string
	}{
		{"nothing is known of it", memory, seen, pod, nil, lowMemory, nil},
		{"none above its request", memory, seen, pod, all(uses("a", 10, -1, -1)), lowMemory, nil},
		{"one above, one without a request", memory, seen, pod, all(uses("a", 11, -1, -1), uses("b", 1, -1, -1)),
			lowMemory + "Container a was using 11Mi, request is 10Mi, has larger consumption of memory. " +
				"Container b was using 1Mi, request is 0, has larger consumption of memory. ",
			map[string]string{"offending_containers": "a,b", "offending_containers_usage": "11Mi,1Mi"}},
		{"an init container", memory, seen, pod, all(uses("init", 6, -1, -1)),
			lowMemory + "Container init was using 6Mi, request is 5Mi, has larger consumption of memory. ",
			map[string]string{"offending_containers": "init", "offending_containers_usage": "6Mi"}},
		{"an ephemeral container is not named", memory, seen, pod, all(uses("debug", 900, -1, -1)), lowMemory, nil},
		{"the pod has a request of its own", memory, seen, sized, all(uses("a", 9, -1, -1), uses("init", 22, -1, -1)),
			lowMemory + "Pod p was using 31Mi, request is 30Mi, has larger consumption of memory. " +
				"Container init was using 22Mi, request is 5Mi, has larger consumption of memory. ",
			map[string]string{"offending_containers": "init", "offending_containers_usage": "22Mi", "offending_pod": "p", "offending_pod_usage": "31Mi"}},
		{"and is not above it", memory, seen, sized, all(uses("a", 30, -1, -1)),
			lowMemory + "Container a was using 30Mi, request is 10Mi, has larger consumption of memory. ",
			map[string]string{"offending_containers": "a", "offending_containers_usage": "30Mi"}},
		{"layer and log together", disk, seen, sized, all(uses("a", 0, 6, 5)),
			lowDisk + "Container a was using 11Mi, request is 10Mi, has larger consumption of ephemeral-storage. ",
			map[string]string{"offending_containers": "a", "offending_containers_usage": "11Mi"}},
		{"one of them is not known", disk, seen, pod, all(uses("a", 0, 600, -1), uses("b", 0, -1, 600)), lowDisk, nil},
		{"inodes", inodes, few, pod, all(uses("a", 99, 99, 99)), "The node was low on resource: inodes. Threshold quantity: 50, available: 40. ", nil},
		{"processes", pids, few, pod, all(uses("a", 99, 99, 99)), "The node was low on resource: pids. Threshold quantity: 1k, available: 40. ", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := rank.Candidate{Pod: tt.pod, Usage: tt.usage}
			if got := lowMessage(tt.t, tt.seen, c); got != tt.message {
				t.Errorf("got  %s\nwant %s", got, tt.message)
			}
			want := map[string]string{"starved_resource": string(tt.t.Signal.Resource())}
			maps.Copy(want, tt.marks)
			if got := annotations(tt.t.Signal.Resource(), c); !maps.Equal(got, want) {
				t.Errorf("annotations %v, want %v", got, want)
			}
		})
	}
	if got := limitMessage(rank.Violation{Limit: rank.ContainerLimit, Name: "c", Max: 2 * mi}); got != `Container c exceeded its local ephemeral storage limit "2Mi". ` {
		t.Errorf("of a container's limit: %s", got)
	}
}
