package kubeapi_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// Events go to an API server; the same one again is a count.
func ExampleNewEventRecorder() {
	api := kubeapitest.New()
	client, err := kubeapi.New(kubeapi.Config{REST: api.Config()})
	if err != nil {
		panic(err)
	}
	rec, err := kubeapi.NewEventRecorder(kubeapi.EventConfig{Client: client, NodeName: "edge-1", Component: "agent"})
	if err != nil {
		panic(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u-1"}}
	rec.Event(pod, v1.EventTypeNormal, "Pulled", "image is there")
	fmt.Println(rec.Counts().Recorded)

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // an agent runs it for as long as it lives
	_ = rec.Run(ctx)
	// Output: 1
}
