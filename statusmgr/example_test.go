package statusmgr_test

import (
	"context"
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/statusmgr"
)

// board shows the phases of pods on a terminal. That is a whole sink: the
// manager sees to order, retries and everything else.
type board struct {
	out  io.Writer
	gone func() // called when a pod is
}

func (b board) Update(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	ready := 0
	for _, c := range st.ContainerStatuses {
		if c.Ready {
			ready++
		}
	}
	_, err := fmt.Fprintf(b.out, "%s/%s %s %d/%d\n", pod.Namespace, pod.Name, st.Phase, ready, len(st.ContainerStatuses))
	return err // is tried again
}

func (b board) Delete(ctx context.Context, pod *v1.Pod) error {
	_, err := fmt.Fprintf(b.out, "%s/%s is gone\n", pod.Namespace, pod.Name)
	b.gone()
	return err
}

func ExampleSink() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m, err := statusmgr.New(statusmgr.Config{Sink: board{os.Stdout, cancel}})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := metav1.Now()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1", DeletionTimestamp: &now}}
	m.Set(pod, v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "nginx", Ready: true}}})
	m.Terminate(pod) // before the sink has heard of the first: one write
	fmt.Println(m.Run(ctx))
	// Output:
	// default/web Failed 0/1
	// default/web is gone
	// <nil>
}

// teller is a sink that passes on what it is told.
type teller chan string

func (t teller) Update(_ context.Context, pod *v1.Pod, st v1.PodStatus) error {
	t <- fmt.Sprint(pod.Name, " is ", st.Phase)
	return nil
}

func (teller) Delete(context.Context, *v1.Pod) error { return nil }

func ExampleManager() {
	sink := make(teller)
	m, err := statusmgr.New(statusmgr.Config{Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}}
	fmt.Println("news:", m.Set(pod, v1.PodStatus{Phase: v1.PodSucceeded}))
	fmt.Println("sink:", <-sink)
	fmt.Println("news:", m.Set(pod, v1.PodStatus{Phase: v1.PodRunning})) // it is over
	phase, _ := m.Phase("1")
	fmt.Println("phase:", phase)

	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// news: true
	// sink: web is Succeeded
	// news: false
	// phase: Succeeded
	// ended: <nil>
}
