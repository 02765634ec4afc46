package podmgr_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/podmgr"
)

func Example() {
	dir, err := os.MkdirTemp("", "manifests")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(manifest), 0o600); err != nil {
		panic(err)
	}

	source, err := podmgr.Directory(podmgr.DirectoryConfig{Path: dir, NodeName: "edge-1"})
	if err != nil {
		panic(err)
	}
	m, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{source}})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()

	change := <-m.Changes()
	fmt.Println(change.Op, change.Pods[0].Name)

	cancel()
	fmt.Println(<-done)
	// Output:
	// ADD a-edge-1
	// <nil>
}
