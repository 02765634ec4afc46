package local_test

import (
	"fmt"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// printer is where events go on to.
type printer struct{}

func (printer) Event(pod *v1.Pod, eventType, reason, message string) {
	fmt.Println(eventType, reason, pod.Name+":", message)
}

// Events are remembered for who asks at the machine, and passed on.
func ExampleNewEventLog() {
	log := local.NewEventLog(zap.NewNop(), "edge-1", printer{}, func() { panic("a recorder has panicked") })
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u-1"}}
	log.Event(pod, v1.EventTypeNormal, "Pulled", "image is there")
	fmt.Println(len(log.Of("u-1")), "remembered")
	// Output:
	// Normal Pulled web: image is there
	// 1 remembered
}
