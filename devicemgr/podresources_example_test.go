package devicemgr_test

import (
	"context"
	"fmt"

	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nodewright/nodewright/devicemgr"
)

func ExamplePodResources() {
	s, err := devicemgr.NewPodResources(devicemgr.PodResourcesConfig{Socket: "/run/agent/pod-resources.sock", Pods: node{}, CPUs: cpus{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	// s.Run serves; in the same process one can ask without the socket.
	resp, err := s.Get(context.Background(), &api.GetPodResourcesRequest{PodName: "y", PodNamespace: "a"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range resp.GetPodResources().GetContainers() {
		fmt.Println(c.GetName(), c.GetCpuIds())
	}
	// Output:
	// side []
	// main [2 3]
}
