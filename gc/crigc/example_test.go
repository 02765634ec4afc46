package crigc_test

import (
	"context"
	"time"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/gc/crigc"
)

// Images that no container uses go once the disk is nearly full, on any CRI runtime.
func ExampleNewImages() {
	client, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
	if err != nil {
		panic(err)
	}
	m, err := gc.NewImageCollector(gc.ImageConfig{Store: crigc.NewImages(client, client)})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := m.Run(ctx); err != nil {
		panic(err)
	}
}
