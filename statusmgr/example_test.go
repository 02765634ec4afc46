package statusmgr_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/statusmgr"
)

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
