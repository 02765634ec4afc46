package kubeapi_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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
	rec.Event(pod, v1.EventTypeNormal, "Pulled", "image is there")

	ctx, cancel := context.WithCancel(context.Background())
	api.Handle("events", func(_ kubeapitest.Request, event runtime.Object) (runtime.Object, error) {
		e := event.(*v1.Event)
		fmt.Println(e.Reason, e.Count)
		cancel() // an agent runs it for as long as it lives
		return e, nil
	})
	fmt.Println(rec.Run(ctx))
	// Output:
	// Pulled 2
	// <nil>
}
