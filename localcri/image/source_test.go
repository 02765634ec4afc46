//go:build linux

package image

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lateBlob has its bytes only after a while, each time.
type lateBlob struct {
	pause time.Duration
	text  io.Reader
}

func (l *lateBlob) Read(p []byte) (int, error) { return l.text.Read(p) }
func (l *lateBlob) ready() bool                { return l.pause == 0 }
func (l *lateBlob) close(bool)                 {}
func (l *lateBlob) wait(context.Context) error {
	time.Sleep(l.pause)
	return nil
}

// A read waits for its bytes without a slot, and then for a slot.
func TestSlotIsReleasedDuringAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan struct{}, 1)
		slots <- struct{}{}
		go func() {
			time.Sleep(3 * time.Second)
			<-slots
		}()
		b := &lateBlob{time.Second, strings.NewReader("text")}
		r := &slotted{ctx: t.Context(), b: b, slots: slots}
		buf := make([]byte, 1)
		for _, want := range []time.Duration{3 * time.Second, time.Second} { // a second for bytes, and two more for the slot at first
			begin := time.Now()
			if _, err := r.Read(buf); err != nil || time.Since(begin) != want {
				t.Errorf("waited %v, %v; want %v", time.Since(begin), err, want)
			}
			time.Sleep(time.Minute) // of unpacking
		}
		b.pause = 0
		begin := time.Now()
		if _, err := r.Read(buf); err != nil || time.Since(begin) != 0 {
			t.Errorf("waited %v, %v", time.Since(begin), err)
		}
		r.release()
	})
}
