package volumemgr_test

import (
	"context"
	"fmt"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func ExampleManager() {
	node := plugintest.New() // a node in memory; see package mount for a real one
	m, err := volumemgr.New(volumemgr.Config{
		Root:    "/root",
		Plugins: []volumemgr.Plugin{&plugintest.Fake{Node: node}},
		Mounter: node,
		Files:   node,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx)
	}()

	mounts, err := m.Mount(ctx, newPod("u1", emptyDir("scratch"), nfs("share")))
	fmt.Println(mounts["scratch"].Path, err)
	for _, s := range m.Why("u1") {
		fmt.Println(s.Volume, "is", s.State)
	}
	fmt.Println(m.Unmount(ctx, "u1"), m.Mounted("u1"))

	cancel()
	<-ended
	// Output:
	// /root/pods/u1/volumes/kubernetes.io~fake/scratch <nil>
	// scratch is mounted
	// share is mounted
	// <nil> false
}
