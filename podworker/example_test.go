package podworker_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// printer is a Syncer that says what it is called for, and does nothing.
type printer struct{ synced, cleaned chan struct{} }

func (p printer) SyncPod(_ context.Context, w podworker.Work) (podworker.Outcome, error) {
	fmt.Println("run", w.Pod.Name)
	close(p.synced)
	return podworker.Outcome{}, nil
}

func (printer) SyncTerminatingPod(_ context.Context, w podworker.Work) error {
	fmt.Println("stop", w.Pod.Name, "within", *w.GracePeriodSeconds, "s")
	return nil
}

func (p printer) SyncTerminatedPod(_ context.Context, w podworker.Work) error {
	fmt.Println("clean up after", w.Pod.Name)
	close(p.cleaned)
	return nil
}

func (printer) SyncTerminatingRuntimePod(context.Context, podworker.Work) error { return nil }

func ExampleManager_Update() {
	syncer := printer{synced: make(chan struct{}), cleaned: make(chan struct{})}
	m, err := podworker.New(podworker.Config{Syncer: syncer})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx) // always nil
	}()

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Namespace: "default", Name: "web"}}
	m.Update(podworker.Update{Type: podworker.CreateUpdate, Pod: pod})
	<-syncer.synced

	grace, done := int64(5), make(chan struct{})
	m.Update(podworker.Update{Type: podworker.KillUpdate, Pod: pod, Kill: &podworker.KillOptions{Why: podlife.Cause{Grace: &grace}, Done: done}})
	<-done // its containers have stopped
	<-syncer.cleaned

	cancel()
	<-ended
	// Output:
	// run web
	// stop web within 5 s
	// clean up after web
}
