//go:build linux

package image_test

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/image"
)

// A container is made of an image from a mirror, without a runtime's daemon.
func Example() {
	run := func(ctx context.Context) error {
		store, err := image.New(image.Config{
			RootDir: "/var/lib/agent/images",
			Registries: map[string]image.Registry{
				"docker.io": {Mirrors: []image.Mirror{{Host: "mirror.example:5000"}}},
			},
		})
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- store.Run(ctx) }()
		id, err := store.PullImage(ctx, &runtimeapi.ImageSpec{Image: "busybox:1"}, nil, nil)
		if err != nil {
			return err
		}
		root, err := store.Use(ctx, id, "container-1")
		if err != nil {
			return err
		}
		defer func() { _ = store.Release("container-1") }()
		fmt.Println("runs", root.Defaults.Entrypoint, root.Defaults.Cmd)
		mount := image.Overlay{Layers: root.Layers, Upper: "/var/lib/agent/c1/upper", Work: "/var/lib/agent/c1/work", Volatile: true}
		return mount.Mount("/var/lib/agent/c1/rootfs")
	}
	_ = run // needs root and a registry
}
