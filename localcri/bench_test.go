//go:build linux

package localcri_test

import (
	"fmt"
	"testing"
)

// BenchmarkPod is a pod of one container from its sandbox until it runs, and until it is removed,
// over runc.
func BenchmarkPod(b *testing.B) {
	n := newNode(b)
	ctx := b.Context()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	start := func(i int) string {
		config := n.podConfig(fmt.Sprint("bench", i))
		config.LogDirectory = n.dir
		sb, err := n.rt.RunPodSandbox(ctx, config, "")
		must(err)
		c, err := n.rt.CreateContainer(ctx, sb, boxConfig("a", "sleep", "forever"), nil)
		must(err)
		must(n.rt.StartContainer(ctx, c))
		return sb
	}
	remove := func(sb string) {
		must(n.rt.StopPodSandbox(ctx, sb))
		must(n.rt.RemovePodSandbox(ctx, sb))
	}
	b.Run("start", func(b *testing.B) {
		for i := range b.N {
			sb := start(i)
			b.StopTimer()
			remove(sb)
			b.StartTimer()
		}
	})
	b.Run("remove", func(b *testing.B) {
		for i := range b.N {
			b.StopTimer()
			sb := start(i)
			b.StartTimer()
			remove(sb)
		}
	})
}
