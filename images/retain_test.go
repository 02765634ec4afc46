package images_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

// Failed pulls go with their pods.
func TestFailedPullsOfPodsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{refuse: func(string, *runtimeapi.AuthConfig) error { return errors.New("no such image") }}
		m := newManager(t, images.Config{Service: r})
		const pods = 500
		held := func() (n int) {
			for i := range pods {
				n += len(m.Waiting(types.UID(fmt.Sprint("u", i))))
			}
			return n
		}
		for i := range pods {
			if _, err := m.Ensure(t.Context(), want(fmt.Sprint("u", i), fmt.Sprintf("registry.example/i%d:1", i), v1.PullAlways)); err == nil {
				t.Fatal("a pull that fails is none")
			}
		}
		if n := held(); n != pods {
			t.Errorf("%d pulls are held back, want %d", n, pods)
		}
		m.Retain(func(uid types.UID) bool { return uid == "u7" })
		if n := held(); n != 1 || len(m.Waiting("u7")) != 1 {
			t.Errorf("%d pulls are held back, want that of u7", n)
		}
	})
}
