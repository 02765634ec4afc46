package images_test

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

func ExampleManager_Ensure() {
	service := &registry{ // *cri.Client for a real runtime
		refuse: func(image string, _ *runtimeapi.AuthConfig) error {
			if image == "registry.example/gone:1" {
				return errors.New("not found")
			}
			return nil
		},
	}
	m, err := images.New(images.Config{Service: service})
	if err != nil {
		panic(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "u1"}}

	for _, image := range []string{"registry.example/app", "registry.example/gone:1", "registry.example/gone:1"} {
		img, err := m.Ensure(context.Background(), images.Request{Pod: pod, Image: image, Policy: v1.PullIfNotPresent})
		var why *images.Error
		if errors.As(err, &why) {
			fmt.Printf("%s, again at a later time: %t\n", why.Reason(), !why.RetryAt().IsZero())
			continue
		}
		fmt.Println(img.Ref, "as user", *img.UID)
	}
	// Output:
	// sha256-of-registry.example/app:latest as user 33
	// ErrImagePull, again at a later time: true
	// ImagePullBackOff, again at a later time: true
}
