package devicemgr_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nodewright/nodewright/devicemgr"
)

// many are 500 pods, each with what pod 1 of node has.
type many struct{ node }

func (many) ActivePods() []*v1.Pod {
	pods := make([]*v1.Pod, 500)
	for i := range pods {
		pods[i] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: types.UID("1")},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
		}
	}
	return pods
}

func BenchmarkList(b *testing.B) {
	s, err := devicemgr.NewPodResources(devicemgr.PodResourcesConfig{Socket: "/s", Pods: many{}, Devices: node{}, CPUs: cpus{}, Memory: podResourcesMemory{}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		resp, err := s.List(context.Background(), &api.ListPodResourcesRequest{})
		if err != nil || len(resp.GetPodResources()) != 500 {
			b.Fatal(len(resp.GetPodResources()), err)
		}
	}
}
