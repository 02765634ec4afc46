package pleg

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// twoStates is a runtime that is in one of two states in turn, with every
// answer made beforehand.
type twoStates struct {
	turn  int
	lists [2][]observed.Listed
	pods  [2]map[types.UID]*observed.Pod
}

func newTwoStates(pods, percent int) (rt *twoStates, changed int) {
	rt = &twoStates{}
	changed = pods * percent / 100
	for turn := range rt.lists {
		rt.pods[turn] = map[types.UID]*observed.Pod{}
		for i := range pods {
			uid := types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", i, i))
			state := observed.Running
			if turn == 1 && i < changed {
				state = observed.Exited
			}
			id := func(kind int) string { return fmt.Sprintf("%032d%032d", i, kind) }
			l := observed.Listed{UID: uid, Name: fmt.Sprintf("pod-%d", i), Namespace: "default",
				Sandboxes:  []observed.Item{{ID: id(0), State: observed.Running}},
				Containers: []observed.Item{{ID: id(1), State: observed.Running}, {ID: id(2), State: state}}}
			rt.lists[turn] = append(rt.lists[turn], l)
			rt.pods[turn][uid] = hintOf(&l)
		}
	}
	return rt, changed
}

func (rt *twoStates) List(context.Context) ([]observed.Listed, error) {
	return rt.lists[rt.turn], nil
}

func (rt *twoStates) Inspect(_ context.Context, uid types.UID) (*observed.Pod, error) {
	return rt.pods[rt.turn][uid], nil
}

func (rt *twoStates) Events(context.Context, func(), func(observed.Event)) error {
	return observed.ErrNoEventStream
}

// rest has none of the pods be one of which there was too much news lately.
func (m *Manager) rest(pods []observed.Listed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	for i := range pods {
		m.records[pods[i].UID].paid, m.out.boxes[pods[i].UID].paid = time.Time{}, time.Time{}
	}
}

// BenchmarkRelist is one relist, the inspections it leads to, and the taking
// of every event.
func BenchmarkRelist(b *testing.B) {
	for _, pods := range []int{100, 1000, 5000} {
		for _, percent := range []int{0, 1, 10} {
			b.Run(fmt.Sprintf("pods=%d/changed=%d%%", pods, percent), func(b *testing.B) {
				rt, changed := newTwoStates(pods, percent)
				m, err := New(Config{Runtime: rt})
				if err != nil {
					b.Fatal(err)
				}
				ctx := b.Context()
				m.ctx = ctx
				go m.out.run(ctx)
				m.relist(ctx)
				for range pods {
					<-m.Events()
				}
				b.ReportAllocs()
				for turns := 1; b.Loop(); turns++ {
					if changed > 0 && turns%(tellBurst-1) == 0 {
						m.rest(rt.lists[0][:changed])
					}
					rt.turn ^= 1
					m.relist(ctx)
					for range changed {
						<-m.Events()
					}
				}
			})
		}
	}
}
