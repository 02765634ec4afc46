package book

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
)

func ref(uid types.UID) part.Ref { return part.Ref{UID: uid, Namespace: "ns", Name: string(uid)} }

func TestNextAt(t *testing.T) {
	now := time.Now()
	b := New()
	if at := b.NextAt(); !at.IsZero() {
		t.Errorf("an empty book wants to be looked at, at %v", at)
	}
	later := &part.Rejection{RetryUntil: now.Add(time.Hour)}
	for _, step := range []struct {
		name string
		do   func(*Entry)
		want time.Time
	}{
		{"waiting", func(e *Entry) { e.Stage, e.Why = Waiting, later }, now.Add(time.Hour)},
		{"quiet", func(e *Entry) { e.Quiet = now.Add(time.Second) }, now.Add(time.Hour)},
		{"asked about while it is quiet", func(e *Entry) { e.Asked = true }, now.Add(time.Second)},
		{"being reserved for", func(e *Entry) { e.Stage = Reserving }, time.Time{}},
		{"rejected", func(e *Entry) { e.Stage = Rejected }, time.Time{}},
	} {
		b.Update(ref("a"), step.do)
		if got := b.NextAt(); !got.Equal(step.want) {
			t.Errorf("%s: next at %v, want %v", step.name, got, step.want)
		}
	}
}

func TestAdmitAndForget(t *testing.T) {
	b := New()
	b.Update(ref("a"), func(e *Entry) { e.Stage, e.Why, e.Grants = Rejected, &part.Rejection{Reason: "No"}, TakenBack })
	b.Admit(ref("a"))
	e := b.Get("a")
	if e.Stage != Admitted || e.Why != nil || e.Grants != TakenBack || e.Ref.Name != "a" {
		t.Errorf("entry %+v", e)
	}
	b.Update(part.Ref{UID: "a"}, func(*Entry) {}) // the UID alone does not take the name away
	b.ForgetIf("a", e.Changes)
	if b.Get("a").Ref.Name != "a" {
		t.Error("an entry that has changed since was forgotten")
	}
	b.Forget("a")
	if len(b.At(Admitted)) != 0 || b.Get("a").Stage != Unknown {
		t.Error("it is still there")
	}
	b.Forget("a")
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls := New(), make(chan types.UID, 10)
		set := func(uid types.UID, after time.Duration) {
			b.SetDeadline(ref(uid), after, func() { calls <- uid })
		}
		set("moved", time.Second)
		set("moved", 3*time.Second)
		set("cleared", time.Second)
		set("forgotten", time.Second)
		set("closed", time.Minute)
		b.ClearDeadline("cleared")
		b.Forget("forgotten")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(calls) != 0 {
			t.Errorf("%s was called too soon", <-calls)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.Close()
		set("late", time.Second)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(calls); n != 1 || <-calls != "moved" {
			t.Errorf("%d calls, want one of the pod whose deadline came", n)
		}
	})
}

func TestStageNames(t *testing.T) {
	for s := Unknown; s <= Rejected; s++ {
		if s.String() == "" {
			t.Errorf("stage %d has no name", s)
		}
	}
}
