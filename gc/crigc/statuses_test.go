package crigc

import (
	"context"
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
)

// What is known of a pod's containers is what it has, however many came before
// them, and whether all pods are looked at or this one.
func TestStatusesGoWithTheirContainers(t *testing.T) {
	s := statuses{ask: func(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
		return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{LogPath: "/log", FinishedAt: 1}}, nil
	}}
	all := func(*runtimeapi.Container) bool { return true }
	of := func(pod string, ids ...string) {
		t.Helper()
		var list []*runtimeapi.Container
		for _, id := range ids {
			list = append(list, &runtimeapi.Container{
				Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED, Labels: map[string]string{cri.LabelPodUID: pod},
			})
		}
		if got, err := s.of(t.Context(), list, pod, all); err != nil || len(got) != len(ids) {
			t.Fatalf("%d of %d, %v", len(got), len(ids), err)
		}
	}
	of("stays", "c")
	for i := range 5000 {
		of("crashes", fmt.Sprint(i), fmt.Sprint(i+1))
		of(fmt.Sprint("pod", i), "c")
		of(fmt.Sprint("pod", i))
	}
	if len(s.known) != 2 || len(s.known["crashes"]) != 2 || len(s.known["stays"]) != 1 {
		t.Errorf("%d pods are known, %d containers of the one that crashes", len(s.known), len(s.known["crashes"]))
	}
}
