package server_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/server"
)

func manyPods(n int) pods {
	var out pods
	for i := range n {
		p := webPod()
		p.Name = fmt.Sprintf("web-%d", i)
		for j := range 20 {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: fmt.Sprintf("NAME_%d", j), Value: "a value of some length"})
		}
		out = append(out, p)
	}
	return out
}

// What is held while a list is written is one pod, not all of them.
func TestPodsAreStreamed(t *testing.T) {
	list := manyPods(500)
	var biggest, total int
	err := server.EncodePods(writer(func(b []byte) {
		biggest, total = max(biggest, len(b)), total+len(b)
	}), list)
	if err != nil {
		t.Fatal(err)
	}
	if biggest > total/100 {
		t.Errorf("one write of %d bytes of %d", biggest, total)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
