package kubeapi_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// Pods of one node are listed with what an agent needs of an API server, and no more.
func ExampleNew() {
	api := kubeapitest.New() // or a server's rest.Config
	api.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	client, err := kubeapi.New(kubeapi.Config{REST: api.Config()})
	if err != nil {
		panic(err)
	}
	pods := &v1.PodList{}
	if err := client.List(context.Background(), kubeapi.Pods, "", metav1.ListOptions{}, pods); err != nil {
		panic(err)
	}
	fmt.Println(len(pods.Items), pods.Items[0].Name)
	// Output: 1 web
}
