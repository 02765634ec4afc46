package podsync_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/statusmgr"
)

// fleet is a node with pods whose statuses a statusmgr.Manager publishes.
func fleet(t *testing.T, n int, fn func(t *testing.T, srv *kubeapitest.Server, m *statusmgr.Manager, pods []*v1.Pod)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		if err != nil {
			t.Fatal(err)
		}
		seen := informer{}
		var pods []*v1.Pod
		for i := range n {
			name := fmt.Sprint("p", i)
			srv.Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1.PodSpec{NodeName: "edge-1"}})
			p := srv.Get(&v1.Pod{}, "ns", name).(*v1.Pod)
			seen["ns/"+name] = p
			pods = append(pods, p)
		}
		sink, err := podsync.NewSink(podsync.SinkConfig{Client: c.Once(), Pods: seen})
		if err != nil {
			t.Fatal(err)
		}
		m, err := statusmgr.New(statusmgr.Config{Sink: sink})
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		fn(t, srv, m, pods)
		stop()
	})
}

// sinkRunning is how many of the pods the server shows as running.
func sinkRunning(srv *kubeapitest.Server) (n int) {
	synctest.Wait()
	for _, o := range srv.All(kubeapi.Pods) {
		if o.(*v1.Pod).Status.Phase == v1.PodRunning {
			n++
		}
	}
	return n
}

// With 2 s a call, statuses go out side by side, one call each.
func TestASlowServer(t *testing.T) {
	fleet(t, 40, func(t *testing.T, srv *kubeapitest.Server, m *statusmgr.Manager, pods []*v1.Pod) {
		srv.Fail(kubeapitest.Slow(2*time.Second, kubeapitest.Any))
		for _, p := range pods {
			m.Set(p, v1.PodStatus{Phase: v1.PodRunning})
		}
		time.Sleep(10*time.Second + time.Millisecond) // 40 calls, 8 at a time
		if n, calls := sinkRunning(srv), len(srv.Requests()); n != 40 || calls != 40 {
			t.Errorf("%d of 40 statuses after ten seconds, %d calls", n, calls)
		}
	})
}

// After an outage the newest statuses arrive within the longest back-off.
func TestAnOutage(t *testing.T) {
	fleet(t, 20, func(t *testing.T, srv *kubeapitest.Server, m *statusmgr.Manager, pods []*v1.Pod) {
		srv.Stop()
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning} {
			for _, p := range pods {
				m.Set(p, v1.PodStatus{Phase: phase, Message: string(phase)})
			}
			time.Sleep(5 * time.Minute)
		}
		srv.ForgetRequests()
		srv.Start()
		time.Sleep(90 * time.Second)
		if n, calls := sinkRunning(srv), len(srv.Requests()); n != 20 || calls != 20 {
			t.Errorf("%d of 20 statuses, %d calls", n, calls)
		}
	})
}

func TestAStormOfConflicts(t *testing.T) {
	fleet(t, 20, func(t *testing.T, srv *kubeapitest.Server, m *statusmgr.Manager, pods []*v1.Pod) {
		srv.Fail(kubeapitest.Refuse(60, kubeapitest.Status(http.StatusConflict), kubeapitest.Of("patch", kubeapi.Pods)))
		for _, p := range pods {
			m.Set(p, v1.PodStatus{Phase: v1.PodRunning})
		}
		time.Sleep(30 * time.Second)
		if n := sinkRunning(srv); n != 20 {
			t.Errorf("%d of 20 statuses", n)
		}
	})
}
