package resources_test

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/podspec"
)

// What an agent does with the part when it starts a pod with hostUsers: false.
func Example_userns() {
	dir, err := os.MkdirTemp("", "userns")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := resources.NewUserNamespaces(resources.UserNamespacesConfig{Store: part.OpenStore(dir, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	hostUsers := false
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "42"}, Spec: v1.PodSpec{HostUsers: &hostUsers}}
	in := podspec.Input{Pod: pod}
	if err := p.Prepare(context.Background(), pod, nil); err != nil {
		fmt.Println(err)
		return
	}
	if err := p.Compile(pod, &in); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("IDs from", in.UserNamespace.First, "on,", in.UserNamespace.Length, "of them")
	// Output: IDs from 65536 on, 65536 of them
}
