package probe_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/probe"
)

// commands runs the commands of exec probes; this one only says that all is
// well.
type commands struct{}

func (commands) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	return []byte("ok"), nil, nil
}

func ExampleManager() {
	changes := make(chan probe.Change)
	m, err := probe.New(probe.Config{Exec: commands{}, OnChange: func(c probe.Change) { changes <- c }})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()

	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name:           "app",
			ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}},
		}}},
	}
	life := podlife.Life{UID: "1"}                                        // its first one
	m.Observe(life, pod, &observed.Pod{UID: "1", ObservedAt: time.Now()}) // nothing runs yet
	m.Observe(life, pod, &observed.Pod{UID: "1", ObservedAt: time.Now(), Containers: []observed.Container{
		{ID: "c1", Name: "app", State: observed.Running},
	}})
	c := <-changes
	fmt.Println(c.Container, c.Type, c.Result)
	fmt.Println("ready:", m.Ready("c1"))

	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// app Readiness Success
	// ready: true
	// ended: <nil>
}
