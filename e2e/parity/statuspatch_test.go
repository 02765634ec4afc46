package parity

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/podsync"
)

// apiPod is an API server with one pod, which merges patches as Kubernetes does.
type apiPod struct{ pod *v1.Pod }

func (a *apiPod) Pod(_, _ string) (*v1.Pod, bool) { return a.pod, true }

func (a *apiPod) Get(_ context.Context, _ kubeapi.Resource, _ kubeapi.Key, into runtime.Object, _ ...metav1.GetOptions) error {
	a.pod.DeepCopyInto(into.(*v1.Pod))
	return nil
}

func (a *apiPod) Delete(context.Context, kubeapi.Resource, kubeapi.Key, metav1.DeleteOptions) error {
	return nil
}

func (a *apiPod) Patch(_ context.Context, _ kubeapi.Resource, _ kubeapi.Key, _ types.PatchType, patch []byte, into runtime.Object, _ ...string) error {
	doc, err := json.Marshal(a.pod)
	if err != nil {
		return err
	}
	if doc, err = strategicpatch.StrategicMergePatch(doc, patch, v1.Pod{}); err != nil {
		return err
	}
	a.pod = &v1.Pod{}
	if err := json.Unmarshal(doc, a.pod); err != nil {
		return err
	}
	a.pod.DeepCopyInto(into.(*v1.Pod))
	return nil
}

// Each status of a pod becomes each other one by the agent's patch, as Kubernetes merges
// it.
func TestStatusPatches(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	states := []v1.PodStatus{
		{},
		{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady"}}},
		{
			Phase: v1.PodRunning, PodIP: "192.0.2.1", PodIPs: []v1.PodIP{{IP: "192.0.2.1"}}, HostIPs: []v1.HostIP{{IP: "192.0.2.9"}},
			AllocatedResources: list("80m", "95Mi"), Resources: &v1.ResourceRequirements{Requests: list("80m", "95Mi"), Limits: list("1", "1Gi")},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", AllocatedResources: list("1", "1Mi"), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
			Conditions:        []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
		},
		{
			Phase: v1.PodRunning, PodIP: "2001:db8::1", PodIPs: []v1.PodIP{{IP: "2001:db8::1"}, {IP: "192.0.2.1"}},
			AllocatedResources: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}, Resources: &v1.ResourceRequirements{Limits: list("2", "2Gi")},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}},
			Conditions:        []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue}},
		},
	}
	for i, from := range states {
		for j, to := range states {
			api := &apiPod{pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}, Status: from}}
			sink, err := podsync.NewSink(podsync.SinkConfig{Client: api, Pods: api})
			if err != nil {
				t.Fatal(err)
			}
			if err := sink.Update(t.Context(), api.pod, to); err != nil {
				t.Fatal(err)
			}
			got := api.pod.Status
			slices.SortFunc(got.Conditions, func(a, b v1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
			if !equality.Semantic.DeepEqual(got, to) {
				t.Errorf("%d to %d: %+v, want %+v", i, j, got, to)
			}
		}
	}
}
