package probe

import (
	"bytes"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
)

func testJournal(t *testing.T, s *checkpointtest.Disk) *journal {
	t.Helper()
	return newJournal(s, zap.NewNop())
}

func ready(r Result) record { return record{"c1": results{Readiness: r}} }

func TestJournalBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &checkpointtest.Disk{}
		j := testJournal(t, s)
		start := time.Now()
		for i := range 600 { // one flip each 100 ms, for a minute
			j.wait(j.put("1", ready(Result(1+i%2))))
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(start); d != time.Minute {
			t.Errorf("results were held up for %v", d-time.Minute)
		}
		synctest.Wait()
		if n := s.Count("write"); n < 14 || n > 17 {
			t.Errorf("%d writes in a minute of flapping, want 10 and one more each 10 s", n)
		}
		j.close()
		if got := j.read("1"); got["c1"][Readiness] != Failure {
			t.Errorf("after close: %v, want the last result", got)
		}
		b, _ := s.Read("probe-1")
		if !bytes.Equal(b, encode(ready(Failure))) {
			t.Errorf("on disk: %s", b)
		}
	})
}

func TestJournalOfOthersIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &checkpointtest.Disk{}
		s.Fault(checkpointtest.Slow(time.Minute, "write"))
		j := testJournal(t, s)
		start := time.Now()
		j.wait(j.put("1", ready(Success)))
		j.wait(j.put("1", ready(Failure)))
		if d := time.Since(start); d != 2*journalWait {
			t.Errorf("two results waited %v for a disk that hangs, want %v", d, 2*journalWait)
		}
		s.Fault(nil)
		start = time.Now()
		j.wait(j.put("2", ready(Success)))
		if d := time.Since(start); d != 0 {
			t.Errorf("another pod's result waited %v", d)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got := j.read("1"); got["c1"][Readiness] != Failure || s.Count("write") != 3 {
			t.Errorf("in the end: %v after %d writes", got, s.Count("write"))
		}
		j.wait(j.put("1", ready(Failure)))
		if s.Count("write") != 3 {
			t.Error("the same was written again")
		}
	})
}

func TestJournalFailsAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &checkpointtest.Disk{}
		s.Fault(checkpointtest.Fail(errors.New("disk full"), "write"))
		j := testJournal(t, s)
		start := time.Now()
		j.wait(j.put("1", ready(Success)))
		if d := time.Since(start); d != 0 {
			t.Errorf("a failed write held up the result for %v", d)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(s.Calls()); n < 5 || n > 7 {
			t.Errorf("%d writes in a minute of failures, want one each 10 s", n)
		}
		s.Fault(nil)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if b, err := s.Read("probe-1"); err != nil || !bytes.Equal(b, encode(ready(Success))) {
			t.Errorf("when the disk is well again: %s, %v", b, err)
		}
		s.Fault(checkpointtest.Fail(errors.New("disk full"), "write"))
		j.put("1", ready(Failure))
		j.close() // comes to an end
	})
}

func TestJournalForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &checkpointtest.Disk{}
		s.Fault(checkpointtest.Slow(time.Second, "write"))
		j := testJournal(t, s)
		j.put("1", ready(Success))
		j.forget("1") // while it is being written
		if got := j.read("1"); got != nil {
			t.Errorf("read back although forgotten: %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left := s.Values(); len(left) != 0 || len(j.entries) != 0 {
			t.Errorf("left: files %v, entries %v", left, j.entries)
		}
		s.Fault(checkpointtest.Fail(errors.New("no list"), "keys"))
		j.sweep(func(types.UID) bool { return false }) // Keys fails; logged
	})
}

func TestJournalContent(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          record // nil: counts as absent
	}{
		{"good", `{"version":1,"containers":{"c1":{"Readiness":"Failure","Startup":"Success"}}}`, record{"c1": results{Startup: Success, Readiness: Failure}}},
		{"empty", ``, nil},
		{"cut", `{"version":1,"containers":{"c1":{"Readin`, nil},
		{"newer", `{"version":2,"containers":{}}`, nil},
		{"unknown field", `{"version":1,"containers":{},"more":1}`, nil},
		{"unknown probe", `{"version":1,"containers":{"c1":{"Wellness":"Success"}}}`, nil},
		{"unknown result", `{"version":1,"containers":{"c1":{"Liveness":"Maybe"}}}`, nil},
		{"no ID", `{"version":1,"containers":{"":{}}}`, nil},
		{"two", `{"version":1,"containers":{}} {}`, nil},
	} {
		s := &checkpointtest.Disk{}
		j := testJournal(t, s)
		s.Put("probe-1", c.content)
		if got := j.read("1"); !maps.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(record{"c1": results{Success, Failure, Unknown}, "c2": {}}))
	f.Add([]byte(`{"version":1,"containers":{"":{"Startup":"UNKNOWN"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		again, err := decode(encode(r))
		if err != nil || !maps.Equal(r, again) {
			t.Fatalf("%v became %v, %v", r, again, err)
		}
	})
}
