package csi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// A volume of a driver, without a volume manager around it.
func Example() {
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	mounts := &plugintest.MountMemory{} // a *mount.Kernel mounts
	socket := filepath.Join(dir, "csi.sock")
	driver, err := csitest.Start(csitest.Config{Socket: socket, Mounter: mounts})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer driver.Stop()

	m, err := csi.New(csi.Config{Root: dir, NodeName: "edge-1", Mounter: mounts})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	// A pluginmgr.Manager does this for drivers that it finds.
	fmt.Println("registered:", m.Registrar().Register(ctx, "disk.example.com", socket, []string{"1.0.0"}))

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "7"}}
	v := &volumemgr.Volume{
		Pod: pod, UID: pod.UID, Name: "scratch", Path: filepath.Join(dir, "pods/7/volumes/kubernetes.io~csi/scratch"),
		Spec: &volumemgr.Spec{Volume: &v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "disk.example.com"}}}},
	}
	r, err := m.Plugin().SetUp(ctx, v)
	rel, _ := filepath.Rel(dir, r.Path)
	fmt.Println(rel, err)
	fmt.Println("published:", len(driver.Published()))
	fmt.Println("torn down:", m.Plugin().TearDown(ctx, v), len(driver.Published()))
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// registered: <nil>
	// pods/7/volumes/kubernetes.io~csi/scratch/mount <nil>
	// published: 1
	// torn down: <nil> 0
	// ended: <nil>
}
