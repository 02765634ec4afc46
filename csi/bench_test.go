package csi

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
)

// latency is what each call of the benchmarks takes in the driver.
const latency = time.Millisecond

// BenchmarkMount stages and publishes volumes concurrently, and removes them: once with this
// package, and once with the calls of the kubelet, which requests capabilities before each step
// and connects again for each request. Only mounting is timed. The kubelet's own work (records,
// mount tables) is not included, that of this package is.
func BenchmarkMount(b *testing.B) {
	for _, volumes := range []int{1, 100} {
		b.Run(fmt.Sprintf("ours/volumes=%d", volumes), func(b *testing.B) {
			n := newNode(b, nil, slow)
			n.register()
			benchmark(b, n, volumes, n.mountOnce, n.unmountOnce)
		})
		b.Run(fmt.Sprintf("kubelet/volumes=%d", volumes), func(b *testing.B) {
			n := newNode(b, nil, slow)
			n.register()
			benchmark(b, n, volumes, n.mountLikeKubelet, n.unmountOnce)
		})
	}
}

func slow(c *csitest.Config) {
	stages(c)
	c.Capabilities = append(c.Capabilities, csitest.MultiWriter)
	c.Latency, c.Mounter = latency, nil
}

func benchmark(b *testing.B, n *node, volumes int, up, down func(*volumemgr.Volume) error) {
	var all []*volumemgr.Volume
	for i := range volumes {
		all = append(all, n.volume(fmt.Sprint("u", i), persistent(fmt.Sprint("h", i))))
	}
	each := func(do func(*volumemgr.Volume) error) {
		var wg sync.WaitGroup
		for _, v := range all {
			wg.Go(func() {
				if err := do(v); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	calls := 0
	for b.Loop() {
		n.driver.Forget()
		each(up)
		b.StopTimer()
		calls += len(n.driver.Calls())
		each(down)
		b.StartTimer()
	}
	b.ReportMetric(float64(calls)/float64(b.N*volumes), "RPCs/volume")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*volumes), "µs/volume")
}

func (n *node) mountOnce(v *volumemgr.Volume) error {
	_, err := n.mount(v)
	return err
}

func (n *node) unmountOnce(v *volumemgr.Volume) error {
	p := n.m.Plugin()
	d, err := p.Device(v)
	if err != nil {
		return err
	}
	if err := p.TearDown(context.Background(), v); err != nil {
		return err
	}
	return p.UnmountDevice(context.Background(), d)
}

// mountLikeKubelet makes the calls of a kubelet 1.36 for a volume: each step asks
// whether the driver stages volumes and whether it mounts with a group, each call
// with an access mode whether it knows of single writers, and every question and
// every call has a connection of its own. Directories and records are this
// package's, so that the volume can be taken down.
func (n *node) mountLikeKubelet(v *volumemgr.Volume) error {
	ctx, h := context.Background(), v.Spec.PersistentVolume.Spec.CSI.VolumeHandle
	src, err := sourceOf(v.Spec, v.Pod, v.UID)
	if err != nil {
		return err
	}
	dir, staging := n.m.staging(src, v.Name)
	if err := n.m.write(dir, record{Handle: h, Driver: src.driver}); err != nil {
		return err
	}
	if err := makeDir(staging); err != nil {
		return err
	}
	mode := src.capability(abilities{multiWriter: true}, "", "")
	connected := func(do func(spec.NodeClient) error) error {
		conn, err := grpc.NewClient("unix://"+n.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return do(spec.NewNodeClient(conn))
	}
	capabilities := func(c spec.NodeClient) error {
		_, err := c.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
		return err
	}
	for _, step := range []func(spec.NodeClient) error{
		capabilities, capabilities, capabilities,
		func(c spec.NodeClient) error {
			_, err := c.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: h, StagingTargetPath: staging, VolumeCapability: mode, VolumeContext: src.attributes})
			return err
		},
		capabilities, capabilities, capabilities,
		func(c spec.NodeClient) error {
			if err := n.m.write(v.Path, n.m.recordOf(v, src, "")); err != nil {
				return err
			}
			_, err := c.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{
				VolumeId: h, StagingTargetPath: staging, TargetPath: v.Path + "/" + mountName, VolumeCapability: mode, VolumeContext: volumeContext(src, v.Pod, true),
			})
			return err
		},
	} {
		if err := connected(step); err != nil {
			return err
		}
	}
	return nil
}
