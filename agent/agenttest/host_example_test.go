package agenttest_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
)

// quota is a part of somebody's own: no more than two pods of a namespace.
type quota struct{ host part.Host }

func (q *quota) Name() string              { return "quota" }
func (q *quota) Join(host part.Host) error { q.host = host; return nil }

func (q *quota) Admit(pod *v1.Pod, others []*v1.Pod) *part.Rejection {
	n := 0
	for _, o := range others {
		if o.Namespace == pod.Namespace {
			n++
		}
	}
	if n >= 2 {
		return &part.Rejection{Reason: "Quota", Message: fmt.Sprintf("namespace %s has %d pods", pod.Namespace, n)}
	}
	return nil
}

// A part is tested with an agent in memory around it.
func ExampleNewHost() {
	test := func(t *testing.T) {
		host, q := agenttest.NewHost(t), &quota{}
		if err := q.Join(host); err != nil {
			t.Fatal(err)
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", UID: "c"}}
		if r := q.Admit(pod, []*v1.Pod{pod, pod}); r == nil {
			t.Error("a third pod is admitted")
		}
	}
	_ = test // func TestQuota(t *testing.T)
}
