//go:build linux

package localcri

import (
	"bytes"
	"sync"
	"testing"
)

// flood writes so many bytes into a capture and returns what it keeps.
func flood(t *testing.T, c *capture, size int) []byte {
	t.Helper()
	w := c.takeWrite()
	if n, err := w.Write(bytes.Repeat([]byte("x"), size)); n != size || err != nil {
		t.Errorf("%d bytes are taken of %d, %v", n, size, err)
	}
	_ = w.Close()
	return c.take(t.Context())
}

// A command's output is kept as far as its caller uses it. What others keep is bounded
// together, and given back.
func TestCapturesAreBounded(t *testing.T) {
	r := &Runtime{}
	begin := func(most int) *capture {
		c, err := r.newCapture(most)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// Probes: many at a time, of which the budget takes no notice.
	var probes sync.WaitGroup
	for range 32 {
		probes.Go(func() {
			c := begin(10 << 10)
			defer c.close()
			if kept := flood(t, c, 4<<20); len(kept) != 10<<10 || cap(kept) > 64<<10 {
				t.Errorf("a probe has %d bytes, capacity %d, want 10 KiB", len(kept), cap(kept))
			}
		})
	}
	probes.Wait()
	var held []*capture
	kept, refused := 0, 0
	for range 8 {
		c := begin(maxOutput)
		held = append(held, c)
		kept += len(flood(t, c, 10<<20))
		if c.refused {
			refused++
		}
	}
	if kept > maxOutputs || refused != 2 {
		t.Errorf("80 MiB of output: %d are kept, %d commands refused; want at most %d, and 2", kept, refused, maxOutputs)
	}
	for _, c := range held {
		c.close()
	}
	if left := r.outputs.Load(); left != 0 {
		t.Errorf("%d bytes are counted when nothing runs", left)
	}
	c := begin(maxOutput)
	defer c.close()
	if kept := flood(t, c, 17<<20); len(kept) != maxOutput || c.refused {
		t.Errorf("%d bytes are kept, refused %v; want %d", len(kept), c.refused, maxOutput)
	}
}
