package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/podmgr"
)

// Pods do not come before the labels by which they are admitted.
func TestPodsComeOnceTheNodeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		srv.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: v1.PodSpec{NodeName: "edge-1"}})
		client, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		if err != nil {
			t.Fatal(err)
		}
		source, err := podsync.NewSource(podsync.SourceConfig{Client: client, NodeName: "edge-1"})
		if err != nil {
			t.Fatal(err)
		}
		known := make(chan struct{})
		var delivered atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- pods{source, known}.Run(ctx, func(s podmgr.Snapshot) { delivered.Add(int32(len(s.Pods))) })
		}()
		time.Sleep(time.Hour)
		if n := delivered.Load(); n > 0 {
			t.Errorf("%d pods came before the Node was known", n)
		}
		close(known)
		time.Sleep(time.Minute)
		if delivered.Load() == 0 {
			t.Error("no pod came")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
