package kubeapitest_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// An API server in memory refuses pods for a while, as a real one that is overloaded.
func ExampleServer_Fail() {
	api := kubeapitest.New()
	api.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	client, err := kubeapi.New(kubeapi.Config{REST: api.Config()})
	if err != nil {
		panic(err)
	}
	api.Fail(kubeapitest.Refuse(1, kubeapitest.TooMany(time.Second), kubeapitest.Of("get", kubeapi.Pods)))
	get := func() error {
		return client.Once().Get(context.Background(), kubeapi.Pods, kubeapi.Key{Namespace: "default", Name: "web"}, &v1.Pod{})
	}
	after, _ := kubeapi.RetryAfter(get())
	fmt.Println("again after", after)
	fmt.Println(get())
	// Output:
	// again after 1s
	// <nil>
}
