package atomicdir

import (
	"bytes"
	"fmt"
	"testing"
)

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 100} {
		sets := [2]Payload{{}, {}}
		for i := range n {
			for s := range sets {
				sets[s][fmt.Sprintf("file-%03d", i)] = File{Data: bytes.Repeat([]byte{byte('a' + s)}, 1024), Mode: 0o644}
			}
		}
		for _, what := range []string{"changed", "same"} {
			b.Run(fmt.Sprintf("files=%d/%s", n, what), func(b *testing.B) {
				w, err := New(Config{Dir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := w.Write(sets[0]); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if what == "changed" {
						i++
					}
					if changed, err := w.Write(sets[i%2]); err != nil || changed != (what == "changed") {
						b.Fatal(changed, err)
					}
				}
			})
		}
	}
}
