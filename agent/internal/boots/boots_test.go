package boots

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// That the server has answered is known in the same boot, and not in the next one.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		read := func(id string, want bool) *Record {
			t.Helper()
			r := Read(dir, id, zap.NewNop())
			if r.Answered() != want {
				t.Errorf("boot %s: answered is %t", id, !want)
			}
			return r
		}
		first := read("first", false)
		read("first", false)
		first.Write(t.Context())
		if first.Answered() {
			t.Error("an answer of this process counts as one of an earlier process")
		}
		read("first", true).Write(t.Context())
		read("second", false).Write(t.Context())
		read("second", true)
		read("first", false)
	})
}

// A disk that fails is tried again.
func TestWriteTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := Read(dir+"/none\x00", "first", zap.NewNop())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Write(t.Context())
		}()
		time.Sleep(time.Hour)
		select {
		case <-done:
			t.Error("gave up")
		default:
		}
	})
}

// Without an API server there is nothing to record.
func TestNoServer(t *testing.T) {
	var r *Record
	if r.Write(t.Context()); r.Answered() {
		t.Error("an answer of no server")
	}
}
