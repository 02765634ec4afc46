//go:build linux

package image

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// BenchmarkPull8Images pulls eight images at once that share five layers of 4 MB
// each and have one of their own.
func BenchmarkPull8Images(b *testing.B) {
	var shared [][]byte
	size := 0
	layerOf := func(seed int) []byte {
		var entries []entry
		for i := range 64 {
			entries = append(entries, file(fmt.Sprintf("f-%d-%d", seed, i), randomText(64<<10)))
		}
		return archive(b, entries...)
	}
	for i := range 5 {
		shared = append(shared, layerOf(i))
	}
	srv := newServer()
	for i := range 8 {
		own := layerOf(10 + i)
		size += len(own)
		srv.image(b, fmt.Sprint("app", i), "1", nil, append(slices.Clone(shared), own)...)
	}
	b.SetBytes(int64(size + 5*len(shared[0])))
	for b.Loop() {
		s, stop := start(b, testConfig(b, memory{host: srv}))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { pull(b, s, fmt.Sprintf("%s/app%d:1", host, i)) })
		}
		wg.Wait()
		if n := layerCount(b, s); n != 13 {
			b.Errorf("%d layers, want 13", n)
		}
		stop()
	}
}
