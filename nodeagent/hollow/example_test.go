package hollow_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/nodeagent/hollow"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "hollow")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	api := kubeapitest.New() // Config.Kubeconfig leads to a real one
	n, err := hollow.New(context.Background(), hollow.Config{Name: "hollow-0", Dir: dir, Transport: api.Transport(), CPUs: 32})
	if err != nil {
		log.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()

	api.Create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1.PodSpec{
			NodeName: "hollow-0", RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{Name: "c", Image: "registry.example/web:1"}},
		},
	})
	for {
		pod := api.Get(&v1.Pod{}, "default", "web").(*v1.Pod)
		if pod.Status.Phase == v1.PodRunning {
			fmt.Println(pod.Name, "runs on", pod.Spec.NodeName)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: web runs on hollow-0
}
