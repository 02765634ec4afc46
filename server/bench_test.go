package server_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/server"
)

// nothing takes an answer and keeps none of it.
type nothing struct{ h http.Header }

func (n nothing) Header() http.Header               { return n.h }
func (n nothing) Write(b []byte) (int, error)       { return len(b), nil }
func (n nothing) WriteHeader(int)                   {}
func (n nothing) WriteString(s string) (int, error) { return len(s), nil }

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

func BenchmarkPods(b *testing.B) {
	for _, n := range []int{1, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := server.Config{Node: "n", Pods: manyPods(n), TLS: &tls.Config{}, Port: 1}
			everyone(&c)
			s, err := server.New(c)
			if err != nil {
				b.Fatal(err)
			}
			h, r := s.Handler(), httptest.NewRequest(http.MethodGet, "/pods", nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(nothing{http.Header{}}, r)
			}
		})
	}
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
