package podmgr

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// own is a source of somebody else's.
type own struct {
	name string
	run  func(ctx context.Context, deliver func(Snapshot)) error
}

func (s own) Name() string { return s.name }

func (s own) Run(ctx context.Context, deliver func(Snapshot)) error { return s.run(ctx, deliver) }

// kinded is one that says what its pods are.
type kinded struct {
	own
	kind Kind
}

func (s kinded) Kind() Kind { return s.kind }

// rawPod is a pod as somebody may write it down, without defaults.
func rawPod(name string) *v1.Pod {
	p := madePod(name, "uid-"+name)
	p.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}}
	return p
}

// once delivers one snapshot.
func once(snap Snapshot) func(context.Context, func(Snapshot)) error {
	return func(ctx context.Context, deliver func(Snapshot)) error {
		deliver(snap)
		<-ctx.Done()
		return nil
	}
}

// runManager runs a manager of sources until the test ends.
func runManager(t *testing.T, log *zap.Logger, sources ...Source) *Manager {
	t.Helper()
	m, err := New(Config{Sources: sources, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = m.Run(t.Context()) }()
	return m
}

// A source that fails is run again, later and later, and its failure is told
// until it speaks. What it wanted stays, and the others do not notice.
func TestFailingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.InfoLevel)
		var runs atomic.Int32
		var works atomic.Bool
		failing := own{"failing", func(ctx context.Context, deliver func(Snapshot)) error {
			if runs.Add(1) == 1 || works.Load() {
				deliver(Snapshot{Pods: []*v1.Pod{rawPod("a")}})
			}
			if works.Load() {
				<-ctx.Done()
			}
			return errors.New("boom")
		}}
		m := runManager(t, zap.New(core), failing, own{"other", once(Snapshot{Pods: []*v1.Pod{rawPod("b")}})})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := runs.Load(); n < 12 || n > 17 {
			t.Errorf("%d runs in ten minutes", n)
		}
		p := m.Problems()
		if len(m.Pods()) != 2 || len(p) != 1 || p[0].Source != "failing" || !strings.Contains(p[0].Reason, "boom") || !p[0].Kept || m.Err() == nil {
			t.Errorf("%d pods, problems %v, error %v", len(m.Pods()), p, m.Err())
		}
		if logs.Len() != 1 {
			t.Errorf("%d lines in the log, want one", logs.Len())
		}
		works.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if p := m.Problems(); len(p) != 0 || m.Err() != nil || logs.FilterMessage("source of pods works again").Len() != 1 {
			t.Errorf("problems %v, error %v, log %v", p, m.Err(), logs.All())
		}
	})
}

// Pods of any source but an API server's get what one would give them, and are
// refused for what one would refuse them for; the last good version stays.
func TestPodsOfOwnSources(t *testing.T) {
	bad := func() *v1.Pod {
		p := rawPod("a")
		p.Spec.RestartPolicy = "Sometimes"
		return p
	}
	escaping := rawPod("c")
	escaping.UID = "../../c"
	for _, tc := range []struct {
		kind     Kind
		default_ bool
	}{{Static, true}, {Managed, true}, {API, false}} {
		synctest.Test(t, func(t *testing.T) {
			say := make(chan Snapshot)
			m := runManager(t, nil, kinded{own{"own", func(ctx context.Context, deliver func(Snapshot)) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case s := <-say:
						deliver(s)
					}
				}
			}}, tc.kind})
			say <- Snapshot{Pods: []*v1.Pod{rawPod("a")}}
			synctest.Wait()
			p, ok := m.PodByName("default", "a")
			if !ok || (p.Spec.TerminationGracePeriodSeconds != nil) != tc.default_ || (p.Spec.RestartPolicy == v1.RestartPolicyAlways) != tc.default_ {
				t.Errorf("kind %d: pod %+v", tc.kind, p)
			}
			if podmeta.IsStatic(p) != (tc.kind == Static) {
				t.Errorf("kind %d: static %t", tc.kind, podmeta.IsStatic(p))
			}
			if !tc.default_ {
				return
			}
			say <- Snapshot{Pods: []*v1.Pod{bad(), escaping.DeepCopy(), nil, rawPod("b")}}
			synctest.Wait()
			var fields []string
			for _, p := range m.Problems() {
				fields = append(fields, p.Field)
			}
			slices.Sort(fields)
			p, ok = m.PodByName("default", "a")
			if !ok || p.Spec.RestartPolicy != v1.RestartPolicyAlways || len(m.Pods()) != 2 || !slices.Equal(fields, []string{"", "metadata.uid", "spec.restartPolicy"}) {
				t.Errorf("kind %d: pods %v, problems %v", tc.kind, m.Pods(), m.Problems())
			}
		})
	}
}

// Somebody who follows pods hears that one is deleted also if it is just not
// named any more, and no pod says of itself that it is followed.
func TestRemovedManagedPod(t *testing.T) {
	for _, kind := range []Kind{Static, Managed, API} {
		m, err := New(Config{Sources: []Source{kinded{own{name: "own"}, kind}}})
		if err != nil {
			t.Fatal(err)
		}
		p := rawPod("a")
		Default(p)
		p.Annotations = map[string]string{podmeta.AnnotationManaged: "true"}
		m.merge("own", Snapshot{Pods: []*v1.Pod{p}})
		if podmeta.IsStatic(m.Pods()[0]) != (kind == Static) {
			t.Errorf("kind %d: annotations %v", kind, m.Pods()[0].Annotations)
		}
		if next, _ := m.queue.take(); next.Op != Add {
			t.Fatalf("%v", next.Op)
		}
		m.merge("own", Snapshot{})
		next, _ := m.queue.take()
		gone := next.Pods[0]
		if next.Op != Remove || (gone.DeletionTimestamp != nil) != (kind == Managed) || p.DeletionTimestamp != nil {
			t.Errorf("kind %d: %v with %v", kind, next.Op, gone.DeletionTimestamp)
		}
		if kind == Managed && *gone.DeletionGracePeriodSeconds != 30 {
			t.Errorf("grace %d", *gone.DeletionGracePeriodSeconds)
		}
	}
}

// Of sources that say nothing, the name of the API server's is kept for it.
func TestKindOf(t *testing.T) {
	for _, tc := range []struct {
		s    Source
		want Kind
	}{
		{own{name: "own"}, Static}, {own{name: podmeta.SourceAPI}, API}, {kinded{own{name: "own"}, Managed}, Managed},
		{kinded{own{name: podmeta.SourceAPI}, Managed}, Managed}, {newDirectory(t, "/x"), Static},
	} {
		if got := KindOf(tc.s); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.s.Name(), got, tc.want)
		}
	}
}

// A source may deliver the same pod again, as the directory does. Readers share it by then, so that
// nobody writes to it; the race detector sees who does.
func TestPodThatIsDeliveredAgainIsOnlyRead(t *testing.T) {
	p := rawPod("a")
	first, again, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m := runManager(t, zap.NewNop(), own{"mine", func(ctx context.Context, deliver func(Snapshot)) error {
		deliver(Snapshot{Pods: []*v1.Pod{p}})
		close(first)
		<-again
		deliver(Snapshot{Pods: []*v1.Pod{p}})
		close(second)
		<-ctx.Done()
		return nil
	}})
	<-first
	pods := m.Pods()
	if len(pods) != 1 || pods[0].Spec.Containers[0].ImagePullPolicy != v1.PullAlways {
		t.Fatalf("pods %v, want one with the defaults", pods)
	}
	close(again)
	copied := pods[0].DeepCopy()
	<-second
	if copied.Spec.Containers[0].ImagePullPolicy != v1.PullAlways {
		t.Error("the pod has lost its defaults")
	}
}
